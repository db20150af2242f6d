// Reads its own ELF header and program headers in memory, as programs do to
// find their build id or their segments. The linker defines __ehdr_start.
// The table names the new text, so the loops take other ways.
// variants: gcc-O2-static gcc-O0-static clang-O2-static-strip gcc-O2-staticpie
// cflags: -Wl,--build-id=sha1
// counts: no
// stdout: executable 1 writable 1 thread-local 1 headers 1 notes 1
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));
static __thread volatile int local = 7;
static int data = 1;
int main(void)
{
    const char *base = (const char *)&__ehdr_start;
    const Elf64_Phdr *headers = (const void *)(base + __ehdr_start.e_phoff);
    int code = 0, writable = 0, tls = 0, ids = 0, kept = 1;
    uint64_t bias = 0;
    for (int i = 0; i < __ehdr_start.e_phnum; i++)
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0)
            bias = (uint64_t)base - headers[i].p_vaddr;
    for (int i = 0; i < __ehdr_start.e_phnum; i++) {
        const Elf64_Phdr *p = &headers[i];
        uint64_t start = bias + p->p_vaddr, end = start + p->p_memsz;
        if (p->p_type == PT_LOAD && (uint64_t)&main >= start && (uint64_t)&main < end)
            code += (p->p_flags & PF_X) != 0;
        if (p->p_type == PT_LOAD && (uint64_t)&data >= start && (uint64_t)&data < end)
            writable += (p->p_flags & PF_W) != 0;
        if (p->p_type == PT_TLS)
            tls += p->p_filesz >= sizeof local && local == 7;
        if (p->p_type == PT_NOTE)
            for (uint64_t at = start; at < end;) {
                const Elf64_Nhdr *note = (const void *)at;
                const char *name = (const char *)(note + 1);
                ids += note->n_type == NT_GNU_BUILD_ID && !strcmp(name, "GNU");
                at += sizeof *note + (note->n_namesz + 3) / 4 * 4 + (note->n_descsz + 3) / 4 * 4;
            }
    }
    kept = !memcmp(__ehdr_start.e_ident, ELFMAG, SELFMAG) && __ehdr_start.e_phentsize == sizeof *headers;
    printf("executable %d writable %d thread-local %d headers %d notes %d\n", code, writable, tls, kept, ids);
}
