// The calls that mount by descriptors, and their flags.
#pragma once
#include "t.h"
#include <sys/mount.h>

#define open_tree(d, p, f) syscall(428, d, p, f)
#define move_mount(fd, fp, td, tp, f) syscall(429, fd, fp, td, tp, f)
#define fsopen(n, f) syscall(430, n, f)
#define fsconfig(fd, c, k, v, a) syscall(431, fd, c, k, v, a)
#define fsmount(fd, f, a) syscall(432, fd, f, a)
#define fspick(d, p, f) syscall(433, d, p, f)
#define mount_setattr(d, p, f, a, s) syscall(442, d, p, f, a, s)
#define statmount(r, b, s, f) syscall(457, r, b, s, f)
#define listmount(r, b, n, f) syscall(458, r, b, n, f)
#define open_tree_attr(d, p, f, a, s) syscall(467, d, p, f, a, s)

#define CLONE 1
#define RECURSIVE 0x8000
#define F_EMPTY 4
#define T_EMPTY 0x40
#define SET_GROUP 0x100
#define BENEATH 0x200
#define SET_FLAG 0
#define SET_STRING 1
#define SET_BINARY 2
#define SET_PATH 3
#define SET_FD 5
#define CREATE 6
#define RECONFIGURE 7

struct mnt_attr {
    unsigned long set, clr, propagation, userns_fd;
};
