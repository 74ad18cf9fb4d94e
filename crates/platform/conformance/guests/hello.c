#include "guest.h"
int main(void) { say("hello\n"); return 7; }
