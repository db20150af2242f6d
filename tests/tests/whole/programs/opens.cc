// Opens libraries in many ways, and prints what it can see of them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdexcept>
#include <string>
#include <sys/auxv.h>
#include <unistd.h>

extern "C" {
int value(int);
int sorted(void);
int chosen(int);
long loop(long);
const char *where(void);
int passed(int (*)(int), int, int *);
void throws(const char *);
extern __thread int in_thread;
}

static int list(dl_phdr_info *info, size_t, void *)
{
    std::string types;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC || info->dlpi_phdr[i].p_type == PT_TLS)
            types += info->dlpi_phdr[i].p_type == PT_TLS ? "t" : "d";
    printf("object '%s' %s\n", info->dlpi_name, types.c_str());
    return 0;
}

static int throwing(int n)
{
    if (n > 2)
        throw std::out_of_range("callback");
    return n;
}

static void use(const char *what, void *library)
{
    if (!library) {
        printf("%s: %s\n", what, dlerror());
        return;
    }
    auto value = (int (*)(int))dlsym(library, "value");
    auto where = (const char *(*)())dlsym(library, "where");
    auto chosen = (int (*)(int))dlsym(library, "chosen");
    auto thread = (int *)dlsym(library, "in_thread");
    link_map *map = nullptr;
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    char origin[4096] = "";
    dlinfo(library, RTLD_DI_ORIGIN, origin);
    printf("%s: %d %d %d %s | %s | %s\n", what, value(1), chosen(1), *thread, where(), map->l_name, origin);
}

static void read_link(const char *path)
{
    char text[4096];
    ssize_t length = readlink(path, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    const char *name = strrchr(text, '/');
    printf("link: %zd %s\n", length, name ? text : "");
}

int main(int argc, char **argv)
{
    const char *folder = argv[1];
    std::string text = folder;
    printf("linked %d %d %d %ld %s %d\n", value(1), sorted(), chosen(1), loop(10), where(), in_thread);
    use("by path", dlopen((text + "/libplain.so").c_str(), RTLD_NOW | RTLD_LOCAL));
    use("by path again", dlopen((text + "/./libplain.so").c_str(), RTLD_LAZY));
    use("by another path", dlopen((text + "/../" + strrchr(folder, '/') + "/libdescriptors.so").c_str(), RTLD_LAZY));
    use("by soname", dlopen("libsoname.so.1", RTLD_LAZY));
    use("by link", dlopen((text + "/liblink.so").c_str(), RTLD_NOW));
    use("in another space", dlmopen(LM_ID_NEWLM, (text + "/libplain.so").c_str(), RTLD_NOW));
    use("linked again", dlopen("liblinked.so", RTLD_NOW | RTLD_NOLOAD));
    use("none", dlopen("libnone.so", RTLD_NOW));
    void *library = dlopen((text + "/libclosed.so").c_str(), RTLD_NOW);
    use("to be closed", library);
    dlclose(library);
    use("closed", dlopen((text + "/libclosed.so").c_str(), RTLD_NOW | RTLD_NOLOAD));
    use("opened again", dlopen((text + "/libclosed.so").c_str(), RTLD_NOW));
    dl_iterate_phdr(list, nullptr);
    int count = 0;
    try {
        printf("%d\n", passed(throwing, 2, &count));
        printf("%d\n", passed(throwing, 3, &count));
    } catch (const std::out_of_range &e) {
        printf("caught %s %d\n", e.what(), count);
    }
    try {
        throws("says");
    } catch (const std::exception &e) {
        printf("caught %s\n", e.what());
    }
    Dl_info info;
    dladdr((void *)&throwing, &info);
    printf("main %s\n", info.dli_fname);
    dladdr((void *)&printf, &info);
    printf("printf %s\n", info.dli_fname);
    dladdr((void *)getauxval(AT_BASE), &info);
    printf("loader %s\n", info.dli_fname);
    printf("names %s %s %s\n", program_invocation_name, program_invocation_short_name, argv[0]);
    printf("execfn %s\n", (const char *)getauxval(AT_EXECFN));
    read_link("/proc/self/exe");
    read_link("/proc/thread-self/exe");
    read_link(("/proc/" + std::to_string(getpid()) + "/exe").c_str());
    char real[4096];
    printf("real %s\n", realpath("/proc/self/exe", real));
    puts(getenv("PATH") ? "path" : "no path");
    for (char **all = environ; *all; all++)
        puts(*all);
    fflush(stdout);
    return 0;
}
