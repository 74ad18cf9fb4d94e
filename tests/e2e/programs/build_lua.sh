# needs: gcc make
set -e
mkdir l; cp "$SRC"/lua/*.[ch] l/; cd l; rm -f luac.c onelua.c ltests.c
cat >Makefile <<'E'
O := $(patsubst %.c,%.o,$(wildcard *.c))
lua: $(O)
	gcc -o $@ $(O) -lm -ldl
%.o: %.c
	gcc -O2 -DLUA_USE_POSIX -DLUA_USE_DLOPEN -c -o $@ $<
E
[ -f lua.c ] || cat >lua.c <<'E'
#include "lauxlib.h"
#include "lualib.h"
int main(int c, char **v) {
    lua_State *L = luaL_newstate(); luaL_openlibs(L);
    return luaL_dofile(L, v[1]) ? (puts(lua_tostring(L, -1)), 1) : 0;
}
E
make -j2 >log 2>&1 || { tail -5 log; exit 1; }
cat >t.lua <<'E'
local t = {} for i = 1, 200000 do t[i] = (i * 7919) % 10007 end table.sort(t) print(t[1], t[100000], #t)
local p = io.popen("echo from sh; exit 3") print(p:read("a"), p:close())
print(os.time{year=2000,month=1,day=1,hour=12} > 0, string.rep("ab", 3))
local f = io.tmpfile() f:write("x") f:seek("set") print(f:read(1))
print(coroutine.wrap(function() coroutine.yield(5) end)())
E
./lua t.lua; make 2>&1 | grep -c 'up to date'
