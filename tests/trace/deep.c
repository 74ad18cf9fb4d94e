/* Opens a file in a directory that is deeper than a report is long, and executes a program there. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
	char name[250];
	memset(name, 'd', sizeof name - 1), name[sizeof name - 1] = 0;
	if (chdir("/dev/shm"))
		return 1;
	for (int depth = 0; depth < 2000; depth++)
		if (mkdir(name, 0755) || chdir(name))
			return 2;
	if (open("hidden", O_CREAT | O_RDWR, 0600) < 0)
		return 3;
	execl("/bin/true", "deep", NULL);
	return 4;
}
