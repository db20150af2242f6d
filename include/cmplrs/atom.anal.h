/* The name of ATOM's header file for analysis routines in Digital UNIX, which need none of it. */
