/* ATOM's primitives for instrument routines in C. docs/tools-in-c.md is the manual, <atom.h> has further ones.
 *
 * A tool defines Instrument(int argc, char **argv, Obj *program); all parameters may be left out. Addresses are those
 * of the original program's file.
 */
#ifndef ATOM_INSTRUMENT_H
#define ATOM_INSTRUMENT_H

#ifdef __cplusplus
extern "C" {
#endif

#ifndef NULL
#define NULL ((void *)0)
#endif

/* Procedures, blocks, instructions, and the objects of a process. */
typedef struct atom_proc Proc;
typedef struct atom_block Block;
typedef struct atom_inst Inst;
typedef struct atom_obj Obj;

typedef enum {
    TextStartAddress,
    TextSize,
    InitDataStartAddress,
    InitDataSize,
    UninitDataStartAddress,
    UninitDataSize
} PInfoType;

typedef enum {
    FrameSize,
    IRegMask,
    IRegOffset,
    FRegMask,
    gpPrologue, /* always 0 */
    gpUsed,     /* always 0 */
    LocalOffset,
    FrameReg,
    PcReg /* always REG_NOTUSED: the return address is on the stack */
} ProcInfoType;

typedef enum {
    InstMemDisp,
    InstBrDisp,
    InstRA, /* the first operand's register, encoded; InstRB and InstRC: of the second and third */
    InstRB,
    InstRC,
    InstOpcode,
    InstBinary /* the first four bytes */
} IInfoType;

typedef enum {
    InstTypeLoad,
    InstTypeStore,
    InstTypeJump,
    InstTypeDiv,
    InstTypeMul,
    InstTypeAdd,
    InstTypeSub,
    InstTypeCondBr,
    InstTypeUncondBr
} ITypeType;

typedef enum {
    ClassNull,
    ClassLoad,
    ClassFload,
    ClassStore,
    ClassFstore,
    ClassIbranch,
    ClassFbranch,
    ClassSubroutine,
    ClassIarithmetic,
    ClassImultiplyl,
    ClassImultiplyq,
    ClassIlogical,
    ClassIshift,
    ClassIcondmove,
    ClassIcompare,
    ClassFpop,
    ClassFdivs,
    ClassFdivd
} IClassType;

typedef enum {
    ProgramBefore,
    ProgramAfter,
    ProcBefore,
    ProcAfter,
    BlockBefore,
    BlockAfter,
    InstBefore,
    InstAfter
} PlaceType;

/* Arguments for the type VALUE. */
typedef enum { BrCondValue = 1, EffAddrValue = 2 } ValueType;

/* Registers: arguments for the type REGV, and results of queries. ATOM's numbers stand for x86-64's registers in the
 * order in which they are encoded: REG_0 is rax, FREG_0 is xmm0. */
typedef enum {
    REG_NOTUSED = -1,
    REG_0, REG_1, REG_2, REG_3, REG_4, REG_5, REG_6, REG_7,
    REG_8, REG_9, REG_10, REG_11, REG_12, REG_13, REG_14, REG_15,
    REG_PC,
    REG_FLAGS,
    REG_CC, /* the cycle counter */
    FREG_0 = 32, FREG_1, FREG_2, FREG_3, FREG_4, FREG_5, FREG_6, FREG_7,
    FREG_8, FREG_9, FREG_10, FREG_11, FREG_12, FREG_13, FREG_14, FREG_15,
    FREG_16, FREG_17, FREG_18, FREG_19, FREG_20, FREG_21, FREG_22, FREG_23,
    FREG_24, FREG_25, FREG_26, FREG_27, FREG_28, FREG_29, FREG_30, FREG_31,
    REG_SP = REG_4
} RegvType;

typedef struct inst_reg_usage {
    unsigned long ureg_bitvec[2];
    unsigned long dreg_bitvec[2];
    unsigned long rreg_bitvec[2]; /* certainly overwritten in full */
    unsigned flags_read, flags_written, flags_undefined;
} InstRegUsageVec;

#define UseRegBitVec(x) (((x)->ureg_bitvec))
#define DestRegBitVec(x) (((x)->dreg_bitvec))

/* Navigation. NULL where there is none. */
Proc *GetFirstProc(void);
Proc *GetLastProc(void);
Proc *GetNextProc(Proc *p);
Proc *GetPrevProc(Proc *p);
Block *GetFirstBlock(Proc *p);
Block *GetLastBlock(Proc *p);
Block *GetNextBlock(Block *b);
Block *GetPrevBlock(Block *b);
Inst *GetFirstInst(Block *b);
Inst *GetLastInst(Block *b);
Inst *GetNextInst(Inst *i);
Inst *GetPrevInst(Inst *i);
Proc *GetBlockProc(Block *b);
Block *GetInstBlock(Inst *i);

/* Queries. */
char *GetProgramName(void);
long GetProgramInfo(PInfoType info);
long GetProcInfo(Proc *p, ProcInfoType info);
Proc *GetNamedProc(const char *pname);
char *ProcName(Proc *p);
char *ProcFileName(Proc *p);
long ProcPC(Proc *p);
long BlockPC(Block *b);
long InstPC(Inst *i);
Inst *GetInstBranchTarget(Inst *i);
char *GetInstProcCalled(Inst *i);
int GetInstBinary(long pc);
long InstLineNo(Inst *i);
int GetInstInfo(Inst *i, IInfoType info);
RegvType GetInstRegEnum(Inst *i, IInfoType info);
int IsInstType(Inst *i, ITypeType type);
IClassType GetInstClass(Inst *i);
void GetInstRegUsage(Inst *i, InstRegUsageVec *bitvec);

/* Calls. Types in prototypes: char, int, long, char *, char[n], int[n], long[n], REGV, VALUE, and
 * further ones for data (see <atom.h>). */
void AddCallProto(const char *prototype);
void AddCallProgram(PlaceType place, const char *pname, ...);
void AddCallProc(Proc *p, PlaceType place, const char *pname, ...);
void AddCallBlock(Block *b, PlaceType place, const char *pname, ...);
void AddCallInst(Inst *i, PlaceType place, const char *pname, ...);

/* Errors name the line at which a call is added, and a call with too few arguments is one. */
void AtomCallAt(const char *file, int line);
#define ATOM_END 0x61746f6d2d656e64L
#define AddCallProto(...) (AtomCallAt(__FILE__, __LINE__), AddCallProto(__VA_ARGS__))
#define AddCallProgram(...) (AtomCallAt(__FILE__, __LINE__), AddCallProgram(__VA_ARGS__, ATOM_END))
#define AddCallProc(...) (AtomCallAt(__FILE__, __LINE__), AddCallProc(__VA_ARGS__, ATOM_END))
#define AddCallBlock(...) (AtomCallAt(__FILE__, __LINE__), AddCallBlock(__VA_ARGS__, ATOM_END))
#define AddCallInst(...) (AtomCallAt(__FILE__, __LINE__), AddCallInst(__VA_ARGS__, ATOM_END))

/* Objects, as in later versions of ATOM. A tool may define unsigned InstrumentAll(int argc, char **argv), which goes
 * over the objects, in place of Instrument. */
Obj *GetFirstObj(void);
Obj *GetNextObj(Obj *o);
Proc *GetFirstObjProc(Obj *o);
Proc *GetLastObjProc(Obj *o);
char *ObjName(Obj *o);
int BuildObj(Obj *o); /* does nothing; 0 */
int WriteObj(Obj *o); /* does nothing; 0 */

#ifdef __cplusplus
}
#endif
#endif
