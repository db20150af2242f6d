/* Runs the Lua script named on the command line. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>
int main(int argc, char **argv)
{
    lua_State *l = luaL_newstate();
    luaL_openlibs(l);
    if (argc != 2 || luaL_dofile(l, argv[1]) != LUA_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? lua_tostring(l, -1) : "usage: lua SCRIPT");
        return 1;
    }
    lua_close(l);
    return 0;
}
