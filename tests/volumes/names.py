"""Programs of the host and of a sandbox use the same names of a volume in every way. Each call may fail only as its
manual page says: the program is that of the differential tests, which judges each error."""

import os, subprocess

# How long the two race.
SECONDS = 2
PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "diff", "held.c")


class Names:
    def __init__(self, rf):
        self.rf = rf

    def build(self):
        program = self.rf.scratch + "/held"
        flags = ["-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-static"]
        subprocess.run(["gcc", *flags, "-o", program, PROGRAM], check=True)
        return program

    def test_names_that_both_sides_use(self):
        program, volume = self.build(), self.rf.dir("names")
        command = ["env", f"HELD_DIR={volume}", f"HELD_SECONDS={SECONDS}", program, "held_thirty_names"]
        inside = self.rf.start("do", f"--volume={volume}:{volume}", *command, stdout=subprocess.PIPE)
        outside = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for side, process in (("inside", inside), ("outside", outside)):
            text = process.communicate(timeout=120)[0]
            assert text == "ok held_thirty_names\n", f"{side}: {text}"

    def test_volumes_of_one_file_system_copy(self):
        a, b = self.rf.dir("from"), self.rf.dir("to")
        code = f"""if True:
            import os
            source, to = open({a!r} + "/f", "w+b"), open({b!r} + "/f", "w+b")
            source.write(b"text")
            source.flush()
            print(os.copy_file_range(source.fileno(), to.fileno(), 4, 0, 0), to.read())
            proc = os.open("/proc/version", os.O_RDONLY)
            try:
                os.copy_file_range(proc, to.fileno(), 4)
            except OSError as error:
                print(error.strerror)
            """
        command = ["/usr/bin/python3", "-c", code]
        native = subprocess.run(command, capture_output=True, text=True).stdout
        assert native == "4 b'text'\nInvalid cross-device link\n", native
        process = self.rf.start(
            "do", f"--volume={a}:{a}", f"--volume={b}:{b}", *command, stdout=subprocess.PIPE
        )
        assert process.communicate(timeout=60)[0] == native

    def test_one_device_number_for_one_file_system(self):
        a, b = self.rf.dir("one"), self.rf.dir("two")
        code = f"import os; print(os.stat({a!r}).st_dev == os.stat({b!r}).st_dev != os.stat('/proc').st_dev)"
        process = self.rf.start(
            "do", f"--volume={a}:{a}", f"--volume={b}:{b}", "/usr/bin/python3", "-c", code, stdout=subprocess.PIPE
        )
        assert process.communicate(timeout=60)[0] == "True\n"
