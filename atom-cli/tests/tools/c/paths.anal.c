#include <stdio.h>
#include <atom.report.h>
#include <atom.paths.h>

void Executed(Path *path, long insts) {
    CountPath(path, insts);
}

/* For each tree, the merged one first: each node with its numbers, then the repeats. */
void End(Paths *paths, Sites *procs, char *name) {
    FILE *out = fopen(name, "w");
    CallTree *tree = MergePaths(paths);
    for (int thread = 0; tree; tree = GetThreadPaths(paths, thread++)) {
        CallNode node;
        CallRepeat repeat;
        for (long n = 0; GetCallNode(tree, n, &node); n++) {
            Site site = {0, "-"};
            GetSite(procs, node.proc, &site);
            fprintf(out, "%ld %ld %ld %s %ld %lu %lu %lu %d\n", n, node.parent, node.depth, site.proc, node.call,
                    node.own, node.total, node.entries, IsOutermostNode(tree, n));
        }
        for (long n = 0; GetCallRepeat(tree, n, &repeat); n++)
            fprintf(out, "%ld -> %ld %lu\n", repeat.from, repeat.to, repeat.calls);
        FreeCallTree(tree);
        fprintf(out, "end\n");
    }
    fclose(out);
}
