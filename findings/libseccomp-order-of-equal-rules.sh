#!/bin/sh
# libseccomp 2.5.4: whether two rules of one system call may stand together depends on the order in which they are
# added. "argument 0 is 1 and argument 1 is 1: EACCES", then "argument 0 is 1: EPERM" is refused with EEXIST. The same
# two rules are accepted when the shorter one comes first. A runtime that adds the rules of an OCI profile in the
# profile's order so fails on one profile and starts with another that says the same.
#
# Prints what each order gives, and fails if that changes. Needs apt-get, dpkg-deb and python3.
set -eu
version=2.5.4-1+deb12u1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
chmod 755 .
apt-get download -qq "libseccomp2=$version" 2>apt.log || { cat apt.log >&2; exit 2; }
dpkg-deb -x libseccomp2_*.deb .
library=$(find . -name 'libseccomp.so.2.*' -type f)
cat >order.py <<'PYTHON'
import ctypes, errno, sys

lib = ctypes.CDLL(sys.argv[1])


class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


EQUAL, ALLOW, ALARM = 4, 0x7FFF0000, 37
lib.seccomp_init.restype = ctypes.c_void_p
lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
LONG = (0x50000 | errno.EACCES, [Compare(0, EQUAL, 1, 0), Compare(1, EQUAL, 1, 0)])
SHORT = (0x50000 | errno.EPERM, [Compare(0, EQUAL, 1, 0)])


def add(*rules):
    context = lib.seccomp_init(ALLOW)
    said = []
    for action, conditions in rules:
        array = (Compare * len(conditions))(*conditions)
        done = lib.seccomp_rule_add_array(context, action, ALARM, len(conditions), array)
        said.append("added" if done == 0 else errno.errorcode[-done])
    return " ".join(said)


print("longer rule first:", add(LONG, SHORT))
print("shorter rule first:", add(SHORT, LONG))
PYTHON
python3 order.py "$library" | tee got
cat >want <<'TEXT'
longer rule first: added EEXIST
shorter rule first: added added
TEXT
cmp -s got want || { echo "libseccomp $version says something else than before" >&2; exit 1; }
