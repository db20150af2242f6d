/* Functions of tools in C beyond ATOM's, for both halves of a tool. docs/tools-in-c.md is the manual.
 *
 * Lists are given item by item: a function takes the number of an item, from 0 on, and returns 0 behind the last:
 *
 *     for (n = 0; GetInstMemory(inst, n, &memory); n++)
 *         ...
 */
#ifndef ATOM_H
#define ATOM_H

#include "instrument.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Instrument routines ---- */

/* Further constants of ATOM's enumerations. */
enum { MayHaveThreads = 6, ProcCount, BlockCount, InstCount };              /* PInfoType */
enum { ReturnOffset = 9, LandingSize, FrameIsDynamic, FrameFromTables };    /* ProcInfoType */
enum {                                                                      /* IInfoType */
    InstOpcodeMap = 7,
    InstEncoding,
    InstImmediate,
    InstMemDispSize,
    InstImmediateSize,
    InstOperandCount,
    InstRepeat,
    InstMaskRegister
};
enum { InstTypeCall = 9, InstTypeRet, InstTypeSyscall };                    /* ITypeType */
enum {                                                                      /* RegvType */
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    REG_MXCSR = 19, REG_FS_BASE, REG_GS_BASE, REG_X87_CONTROL, REG_X87_STATUS,
    REG_K0, REG_K1, REG_K2, REG_K3, REG_K4, REG_K5, REG_K6, REG_K7,
    REG_ST0 = 64,
    REG_TMM0 = 72
};
#define HighHalf(reg) ((reg) | 0x100) /* for REGV: the second 64 bits of a vector register */

/* Arguments for the type VALUE. Those with a number are of memory operand n of GetInstMemory; but ArgumentOf(n) is of a procedure,
 * and SystemCallArgument(n) of a system call. */
enum {
    LoadedValue = 3,
    StoredValue,
    AccessSize,
    RepCount,
    Direction,
    BranchTarget,
    ReturnValue,
    OutcomeValue,
    ReturnAddress = 12,
    SystemCallNumber,
    SystemCallResult = 15
};
#define ArgumentOf(n) (11 | ((n) + 1) << 8)
#define SystemCallArgument(n) (14 | ((n) + 1) << 8)
#define EffAddrOf(n) (EffAddrValue | ((n) + 1) << 8)
#define LoadedValueOf(n) (LoadedValue | ((n) + 1) << 8)
#define StoredValueOf(n) (StoredValue | ((n) + 1) << 8)
#define AccessSizeOf(n) (AccessSize | ((n) + 1) << 8)

/* Calls that change the program. ReplaceProc has a routine run in place of a procedure, with OutcomeValue as an argument; a
 * call at an instruction with OutcomeFor may set a register. The routine's parameter for it has the type long. */
void ReplaceProc(Proc *p, const char *pname, ...);
int CanReplaceProc(Proc *p);
#define ReplaceProc(...) (AtomCallAt(__FILE__, __LINE__), ReplaceProc(__VA_ARGS__, ATOM_END))
#define OutcomeFor(reg) (OutcomeValue | ((reg) + 1) << 8)
/* In the routine: the procedure returns the result, or the register gets it. */
#define OutcomeReturns(outcome, result) (((long *)(outcome))[0] = 1, ((long *)(outcome))[1] = (result))

/* The value base + index * scale + displacement, for the type VALUE. A register that is REG_NOTUSED is left out. */
int ValueOfSum(int base, int index, int scale, int displacement);

/* Ways into a block from outside of its procedure, out of it to the next instruction, and out of it by a jump or return. */
typedef enum { WayEntry, WayFalling, WayTaken } WayType;
int BlockHasWay(Block *b, WayType way);
int EdgeWay(int kind); /* the way of an edge, by its kind; -1 if no call can be added there */
void AddCallWay(Block *b, WayType way, const char *pname, ...);
#define AddCallWay(...) (AtomCallAt(__FILE__, __LINE__), AddCallWay(__VA_ARGS__, ATOM_END))

/* Bits of `access` below. */
enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_CONDITIONAL = 4 };

/* An operand in memory. Registers are REG_NOTUSED where there is none. */
typedef struct {
    int access, size, count, segment, base, index, scale, index_size, bit_offset, flags;
    long displacement;
    long address; /* if the flag MEMORY_FIXED is set */
} InstMemory;
enum {
    MEMORY_IMPLICIT = 1,
    MEMORY_STRING = 2,
    MEMORY_REPEATED = 4,
    MEMORY_BROADCAST = 8,
    MEMORY_ADDRESS_32 = 16,
    MEMORY_FIXED = 32,
    MEMORY_INDEX_8 = 64
};

/* An operand as the instruction is written. */
typedef struct {
    int kind, access, reg, offset, size;
    long value;
} InstOperand;
enum { OPERAND_REGISTER, OPERAND_MEMORY, OPERAND_CONSTANT, OPERAND_TARGET };

/* A part of a register that an instruction accesses. */
typedef struct {
    int reg, offset, size, access;
} InstRegAccess;

/* Floating-point operations of an instruction: bits of a number, bits of the vector or 0, numbers, operations on each. */
typedef struct {
    int precision, vector, numbers, each;
} InstFloatOps;

/* An edge, seen from one of its ends. */
typedef struct {
    int kind;
    Block *block; /* at the other end; NULL outside the procedure */
    long address;
} BlockEdge;
enum { EDGE_FALL, EDGE_TAKEN, EDGE_TABLE, EDGE_CALL_RETURN, EDGE_UNWIND, EDGE_TAIL, EDGE_RETURN, EDGE_UNKNOWN };

/* A natural loop. Its parent is the number of the loop around it, or -1. */
typedef struct {
    Block *header;
    int parent, depth, latches, blocks;
    int irreducible; /* the procedure has circles that are no natural loops */
} ProcLoop;

typedef struct {
    int reg, offset;
} SavedReg;

/* A function that an instruction comes from; the innermost first. */
typedef struct {
    char *name, *symbol, *file;
    int line, column;
} SourceFrame;

/* Results of GetProcStatus. */
enum { PROC_FULL, PROC_PARTIAL, PROC_OPAQUE };

/* Procedures. */
Proc *GetProcAt(long pc);
Proc *GetNamedProcs(const char *pname, int n);
Proc *GetMatchingProc(const char *pattern, int n);
char *ProcSymbol(Proc *p);
long ProcSize(Proc *p);
long ProcIndex(Proc *p);
int GetProcStatus(Proc *p);
int IsProcStub(Proc *p);
int IsProcSelected(Proc *p);
int GetProcSavedReg(Proc *p, int n, SavedReg *reg);
Block *GetProcEntry(Proc *p, int n);
/* These, and in a run with windows the blocks at which calls begin to be made, or cease to, in the middle of an execution. */
Block *GetProcStart(Proc *p, int n);
int GetProcLoop(Proc *p, int n, ProcLoop *loop);
Block *GetLoopBlock(Proc *p, int loop, int n);
Block *GetLoopLatch(Proc *p, int loop, int n);

/* Blocks. */
long BlockIndex(Block *b);
int IsBlockSelected(Block *b);
int GetBlockSuccessor(Block *b, int n, BlockEdge *edge);
int GetBlockPredecessor(Block *b, int n, BlockEdge *edge);
long IsBlockReachable(Block *b);
long IsBlockAddressTaken(Block *b);
int BlockDominates(Block *b, Block *other);
int BlockPostDominates(Block *b, Block *other);
Block *GetBlockDominator(Block *b);
Block *GetBlockPostDominator(Block *b);
int GetBlockLoop(Block *b); /* the innermost loop's number, or -1 */

/* Instructions. */
Inst *GetInstAt(long pc);
Proc *GetInstProc(Inst *i);
long InstIndex(Inst *i);
long InstSize(Inst *i);
char *InstText(Inst *i);
char *InstMnemonic(Inst *i);
char *InstISA(Inst *i);
char *InstFileName(Inst *i);
long GetInstTargetPC(Inst *i);
Proc *GetInstCalledProc(Inst *i);
Proc *GetInstEnteredProc(Inst *i);
char *GetInstEnteredImport(Inst *i);
int FindInstInfo(Inst *i, IInfoType info, long *value); /* 0 if the instruction does not have it */
int GetInstMemory(Inst *i, int n, InstMemory *memory);
int GetInstOperand(Inst *i, int n, InstOperand *operand);
int GetInstRegAccess(Inst *i, int n, InstRegAccess *access);
int GetInstFloatOps(Inst *i, InstFloatOps *ops);
int InstOffers(Inst *i, PlaceType place, int value);
char *RegName(int reg);

/* The program and its objects. */
char *GetProgramPath(void);
int GetBytes(long pc, int n, unsigned char *to);
int GetSourceFrame(long pc, int n, SourceFrame *frame);
char *PCName(long pc);
Obj *GetLastObj(void);
Obj *GetPrevObj(Obj *o);
Obj *GetObjAt(long pc);
Obj *GetProcObj(Proc *p);
Obj *GetBlockObj(Block *b);
Obj *GetInstObj(Inst *i);
char *ObjPath(Obj *o);
char *ObjSoname(Obj *o);
char *ObjBuildId(Obj *o);
typedef enum { ObjStart, ObjEnd, ObjIndex, ObjIsProgram, ObjIsInterpreter, ObjProcCount } ObjInfoType;
long GetObjInfo(Obj *o, ObjInfoType info);

/* Data in the program, as an argument for the types COUNTER, COUNTERS, MARK, MARKS, THREAD and THREADS. The type
 * ADDRESS takes an address of the file and gives the routine the run-time address; at ProgramBefore and ProgramAfter. */
typedef struct atom_data Data;
Data *MakeCounters(long n);
Data *CounterAt(Data *counters, long n);
Data *MakeMarks(long n);
Data *MarkAt(Data *marks, long n);
Data *MakeThreadData(const void *initial, long size); /* all zeros, if initial is NULL */

/* ---- Analysis routines ---- */

/* What a routine gets for COUNTERS and for MARKS; for COUNTER it gets an unsigned long *, for MARK an unsigned char *.
 * Each thread counts with its own counters; ProgramAfter sees the sums. */
typedef struct {
    unsigned long count, unused;
    unsigned long value[];
} Counters;
typedef struct {
    unsigned long count;
    unsigned char is_set[];
} Marks;

/* For THREADS: the data of the first thread for NULL, then of each next one, then NULL. */
typedef struct atom_threads Threads;
void *NextThreadData(Threads *all, const void *data);
/* The number of the thread to which such data belongs. */
int ThreadNumber(const void *data);

/* To be called once, at ProgramBefore, with the routine's argument THREAD: has functions called in each thread, with its copy of
 * the data, when it begins (this one at once) and when it ends. */
void OnThreads(void *data, void (*begin)(void *), void (*end)(void *));

/* Writes an address of a file as people read it (`libc.so.6+0x2c7f0`), and returns the buffer. */
char *AddressText(long pc, char *buffer, long size);
/* From an address of a file to the run-time address, and back (in a whole process); 0 if the object is not loaded. */
long RunTimeAddress(long pc);
long AddressOf(long run_time);

/* Copies size bytes at a run-time address, as far as they can be read, and returns their number: 0 where nothing is mapped. */
long ReadMemory(long run_time, void *to, long size);

/* Has a function called in each forked child as it begins. One function for a tool. */
void OnFork(void (*function)(void));

#ifdef __cplusplus
}
#endif
#endif
