/*
 * Markers for kernels and profiled sections, for `atom APP --tool kernel`.
 *
 *     ATO_KERNEL_BEGIN(name);  ... ATO_KERNEL_END(name);
 *     ATO_PROFILE_BEGIN(name); ... ATO_PROFILE_END(name);
 *
 *     ATO_KERNEL_BEGIN_FROM(name, first); and ATO_PROFILE_BEGIN_FROM
 *
 *     {
 *         ATO_KERNEL_SCOPE(name);   // or ATO_PROFILE_SCOPE(name)
 *         ...                       // ends wherever the block is left
 *     }
 *
 * `name` is a word without quotes. A marker is a one-byte `nop` and a note in a
 * section that is never loaded; it needs no library and no debug information,
 * and stays through optimisation, inlining, strip and link-time optimisation.
 * A section begun with BEGIN may have several ENDs, one for each path out; every
 * path must pass one. A SCOPE ends by itself.
 *
 * For C and C++, with gcc and clang, on Linux x86-64. With ATO_NONE defined,
 * the markers expand to nothing. Licence: MIT or Apache-2.0, like the whole
 * project.
 */
#ifndef ATO_H
#define ATO_H

#if defined(ATO_NONE)

#define ATO_MARK_(type, name) ((void)0)
#define ATO_NOTE_(type, name, ...) ((void)0)
#define ATO_SCOPE_(type, name) ((void)0)

#else

#define ATO_TEXT_(x) #x
#define ATO_TEXT(x) ATO_TEXT_(x)

/*
 * The note has the owner "ato" and a type. Its description is the address of the
 * nop, the line, and, each null-terminated, the section's name and the source file.
 * Types: 1 begins a kernel, 2 a profiled section; 3 and 4 end one; 5 ends the
 * innermost scope; 6 and 7 are 1 and 2 with the first index in rdi.
 */
#define ATO_MARK_(type, name) ATO_NOTE_(type, name, )
#define ATO_NOTE_(type, name, ...)                                             \
    __asm__ volatile("990: nop\n"                                              \
                     ".pushsection .note.ato,\"?\",\"note\"\n"                 \
                     ".balign 4\n"                                             \
                     ".4byte 992f-991f, 994f-993f, " type "\n"                 \
                     "991: .asciz \"ato\"\n"                                   \
                     "992: .balign 4\n"                                        \
                     "993: .8byte 990b\n"                                      \
                     ".4byte " ATO_TEXT(__LINE__) "\n"                         \
                     ".asciz \"" name "\"\n"                                   \
                     ".asciz \"" __FILE__ "\"\n"                               \
                     "994: .balign 4\n"                                        \
                     ".popsection\n" ::__VA_ARGS__ : "memory")

static inline __attribute__((always_inline, unused)) void
ato_scope_end_(const char *scope)
{
    (void)scope;
    ATO_MARK_("5", "");
}

#define ATO_SCOPE_(type, name)                                                 \
    ATO_MARK_(type, #name);                                                    \
    const char ato_scope_##name                                                \
        __attribute__((cleanup(ato_scope_end_), unused)) = 0

#endif

/*
 * Markers with the index of the first execution: if a loop is divided among
 * threads, each thread gives the number of its first iteration.
 */
#define ATO_KERNEL_BEGIN_FROM(name, first)                                     \
    ATO_NOTE_("6", #name, "D"((long)(first)))
#define ATO_PROFILE_BEGIN_FROM(name, first)                                    \
    ATO_NOTE_("7", #name, "D"((long)(first)))

#define ATO_KERNEL_BEGIN(name) ATO_MARK_("1", #name)
#define ATO_KERNEL_END(name) ATO_MARK_("3", #name)
#define ATO_KERNEL_SCOPE(name) ATO_SCOPE_("1", name)

#define ATO_PROFILE_BEGIN(name) ATO_MARK_("2", #name)
#define ATO_PROFILE_END(name) ATO_MARK_("4", #name)
#define ATO_PROFILE_SCOPE(name) ATO_SCOPE_("2", name)

#endif
