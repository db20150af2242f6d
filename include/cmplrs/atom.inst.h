/* The name of ATOM's header file in Digital UNIX. */
#include "../instrument.h"
