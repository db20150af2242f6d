/* Call paths for tools in C: which procedure was called by which, from the start of each thread. docs/tools-in-c.md is
 * the manual. */
#ifndef ATOM_PATHS_H
#define ATOM_PATHS_H

#include <atom.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Instrument routines ---- */

/* What a call path is. With NULL for the options: {0, 1, 1 << 20}. */
typedef struct {
    int by_site; /* calls of a procedure from different places are different paths: use CalledNode */
    int repeats; /* how often a procedure may be on a path; 0 for any number */
    long most;   /* number of nodes of a thread from which on there are no new paths */
} PathOptions;

/* Adds the calls that follow call paths, once. The data is for the types PATH and PATHS. Other calls at entries and
 * exits of procedures are added afterwards: their routines then see the path with the entered procedure. */
Data *AddCallPaths(const PathOptions *options);
/* The procedures and the calls, by the numbers that nodes have; for the type SITES. */
Data *PathProcs(Data *paths);
Data *PathCalls(Data *paths);
/* With by_site, before PathProcs: the number by which CalledNode knows a procedure. */
int PathProcNumber(Data *paths, Proc *p);

/* Adds calls of a routine with the prototype `name(PATH, long)`, which adds the number to the running path: few calls
 * for the sum over the executed blocks of a procedure of their amounts. Numbers may be negative. The sum is right where
 * the procedure calls, returns or makes a system call. */
void AddCallAmounts(Proc *p, Data *paths, const char *pname, long (*amount)(Block *b));

/* ---- Analysis routines ---- */

/* A node of a thread's tree. */
typedef struct {
    unsigned long count; /* what routines add up here */
    unsigned long entries;
    unsigned long internal[5];
    unsigned long value; /* the tool's own */
} PathNode;

/* What a routine gets for PATH: the running thread's call path. */
typedef struct {
    PathNode root;
    unsigned long running;
} Path;

/* The node of the running procedure's path. */
static inline PathNode *RunningNode(Path *path) {
    return (PathNode *)((char *)path + path->running);
}
/* Adds to what the running path has counted. */
static inline void CountPath(Path *path, unsigned long n) {
    RunningNode(path)->count += n;
}
/* With by_site, at ProcBefore: the node of a procedure with this number, and the values of rsp and rbp. */
PathNode *CalledNode(Path *path, int proc, long rsp, long rbp);

/* What a routine gets for PATHS, at ProgramAfter. */
typedef struct atom_paths Paths;

/* The tree of the sums of all threads, or of one thread (NULL behind the last); it is freed by FreeCallTree. */
typedef struct atom_call_tree CallTree;
CallTree *MergePaths(const Paths *paths);
CallTree *GetThreadPaths(const Paths *paths, int n);
void FreeCallTree(CallTree *tree);

/* A call path: numbers of the node above (of the root its own), of the procedure and of the call (-1 for none); its counts, with those of the
 * nodes below in `total`, and the number of entries. Node 0 is the root; each node is behind its parent. */
typedef struct {
    long parent, depth, proc, call;
    unsigned long own, total, entries;
} CallNode;
int GetCallNode(const CallTree *tree, long n, CallNode *node);
/* 1 if no node above has the node's procedure: the totals of such nodes of a procedure have each execution once. */
int IsOutermostNode(const CallTree *tree, long n);

/* Calls that have no node of their own: recursive ones, and those beyond the number of nodes. */
typedef struct {
    long from, to;
    unsigned long calls;
} CallRepeat;
int GetCallRepeat(const CallTree *tree, long n, CallRepeat *repeat);

/* The tool's own values of nodes that are not 0, each with its node. */
int GetPathValue(const CallTree *tree, long n, unsigned long *value, long *node);

#ifdef __cplusplus
}
#endif
#endif
