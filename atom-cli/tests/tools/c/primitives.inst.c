/* Calls each primitive about the program known.s, of which all is known. */
#include <cmplrs/atom.inst.h>
#include <atom.h>
#include <stdio.h>
#include <string.h>

static int checks, failures;

static void check(int is_right, const char *what, int line) {
    checks++;
    if (!is_right) {
        failures++;
        printf("primitives.inst.c:%d: %s\n", line, what);
    }
}
#define CHECK(what) check((what) != 0, #what, __LINE__)
#define TEXT(what, text) check((what) && strcmp((what), (text)) == 0, #what " is " text, __LINE__)

/* The line of known.s in which a label stands is printed there; lines count from it. */
static Proc *named(const char *name) {
    Proc *p = GetNamedProc(name);
    CHECK(p);
    return p;
}

static Inst *nth(Block *b, int n) {
    Inst *i = GetFirstInst(b);
    while (n-- > 0)
        i = GetNextInst(i);
    return i;
}

static void navigation(void) {
    Proc *p, *before = NULL;
    Block *b;
    Inst *i;
    long procs = 0, blocks = 0, insts = 0;
    for (p = GetFirstProc(); p; p = GetNextProc(p)) {
        CHECK(GetPrevProc(p) == before);
        CHECK(ProcIndex(p) == procs);
        before = p;
        procs++;
        Block *behind = NULL;
        for (b = GetFirstBlock(p); b; b = GetNextBlock(b)) {
            CHECK(GetPrevBlock(b) == behind && GetBlockProc(b) == p);
            CHECK(BlockPC(b) == InstPC(GetFirstInst(b)) && GetProcAt(BlockPC(b)) == p);
            behind = b;
            blocks++;
            Inst *last = NULL;
            for (i = GetFirstInst(b); i; i = GetNextInst(i)) {
                CHECK(GetPrevInst(i) == last && GetInstBlock(i) == b && GetInstProc(i) == p);
                CHECK(GetInstAt(InstPC(i)) == i && InstSize(i) > 0 && InstIndex(i) >= 0);
                last = i;
                insts++;
            }
            CHECK(GetLastInst(b) == last);
        }
        CHECK(GetLastBlock(p) == behind);
    }
    CHECK(GetLastProc() == before);
    CHECK(procs == GetProgramInfo(ProcCount) && blocks == GetProgramInfo(BlockCount));
    CHECK(insts == GetProgramInfo(InstCount));
    CHECK(BlockIndex(GetNextBlock(GetFirstBlock(named("main")))) == BlockIndex(GetFirstBlock(named("main"))) + 1);
}

static void program(int argc, char **argv, Obj *o) {
    TEXT(GetProgramName(), "known");
    TEXT(GetProgramPath(), "./known");
    CHECK(argc == 3);
    TEXT(argv[0], "known");
    TEXT(argv[1], "--option");
    TEXT(argv[2], "value");
    CHECK(argv[3] == NULL);
    CHECK(GetProgramInfo(TextSize) > 60 && GetProgramInfo(TextStartAddress) <= ProcPC(named("main")));
    CHECK(GetProgramInfo(InitDataStartAddress) > 0 && GetProgramInfo(InitDataSize) > 0);
    CHECK(GetProgramInfo(UninitDataStartAddress) >= GetProgramInfo(InitDataStartAddress));
    CHECK(GetProgramInfo(UninitDataSize) >= 0 && GetProgramInfo(MayHaveThreads) == 0);
    CHECK(o == GetFirstObj() && o == GetLastObj() && GetNextObj(o) == NULL && GetPrevObj(o) == NULL);
    CHECK(GetFirstObjProc(o) == GetFirstProc() && GetLastObjProc(o) == GetLastProc());
    CHECK(GetProcObj(named("main")) == o && GetObjAt(ProcPC(named("main"))) == o);
    CHECK(GetBlockObj(GetFirstBlock(named("main"))) == o && GetInstObj(GetInstAt(ProcPC(named("main")))) == o);
    TEXT(ObjName(o), "known");
    TEXT(ObjPath(o), "./known");
    CHECK(ObjSoname(o) == NULL && strlen(ObjBuildId(o)) == 40);
    CHECK(GetObjInfo(o, ObjStart) <= ProcPC(named("main")) && GetObjInfo(o, ObjEnd) > ProcPC(named("main")));
    CHECK(GetObjInfo(o, ObjIndex) == 0 && GetObjInfo(o, ObjIsProgram) && !GetObjInfo(o, ObjIsInterpreter));
    CHECK(GetObjInfo(o, ObjProcCount) == GetProgramInfo(ProcCount));
    CHECK(BuildObj(o) == 0 && WriteObj(o) == 0);
    TEXT(PCName(0x1234), "0x1234");
}

static void procedures(void) {
    Proc *main_proc = named("main");
    SavedReg saved;
    TEXT(ProcName(main_proc), "main");
    TEXT(ProcSymbol(main_proc), "main");
    CHECK(strstr(ProcFileName(main_proc), "known.s"));
    CHECK(GetNamedProc("nothing") == NULL);
    CHECK(GetNamedProcs("main", 0) == main_proc && GetNamedProcs("main", 1) == NULL);
    CHECK(GetMatchingProc("tw*", 0) == named("twice") && GetMatchingProc("tw*", 1) == NULL);
    CHECK(ProcSize(main_proc) == 45 && GetProcStatus(main_proc) == PROC_FULL);
    CHECK(IsProcSelected(main_proc) && !IsProcStub(main_proc) && IsBlockSelected(GetFirstBlock(main_proc)));
    CHECK(GetProcInfo(main_proc, FrameSize) == 48 && GetProcInfo(main_proc, IRegMask) == 1 << REG_RBX);
    CHECK(GetProcInfo(main_proc, IRegOffset) == -16 && GetProcInfo(main_proc, FRegMask) == 0);
    CHECK(GetProcInfo(main_proc, gpPrologue) == 0 && GetProcInfo(main_proc, gpUsed) == 0);
    CHECK(GetProcInfo(main_proc, LocalOffset) == -16 && GetProcInfo(main_proc, FrameReg) == REG_SP);
    CHECK(GetProcInfo(main_proc, PcReg) == REG_NOTUSED && GetProcInfo(main_proc, ReturnOffset) == -8);
    CHECK(GetProcInfo(main_proc, LandingSize) == 0 && GetProcInfo(main_proc, FrameIsDynamic) == 0);
    CHECK(GetProcInfo(main_proc, FrameFromTables) == 0);
    CHECK(GetProcSavedReg(main_proc, 0, &saved) && saved.reg == REG_RBX && saved.offset == -16);
    CHECK(GetProcSavedReg(main_proc, 1, &saved) == 0);
}

static void flow(void) {
    Block *sum = GetFirstBlock(named("sum")), *circle = GetNextBlock(sum), *end = GetNextBlock(circle);
    Block *twice = GetFirstBlock(named("twice")), *large = GetNextBlock(twice), *small = GetNextBlock(large);
    BlockEdge edge;
    ProcLoop loop;
    CHECK(GetBlockSuccessor(sum, 0, &edge) && edge.kind == EDGE_FALL && edge.block == circle);
    CHECK(edge.address == BlockPC(circle) && GetBlockSuccessor(sum, 1, &edge) == 0);
    int n, ways = 0;
    for (n = 0; GetBlockSuccessor(twice, n, &edge); n++)
        ways |= edge.kind == EDGE_FALL && edge.block == large ? 1 : edge.kind == EDGE_TAKEN && edge.block == small ? 2 : 4;
    CHECK(n == 2 && ways == 3);
    CHECK(GetBlockPredecessor(large, 0, &edge) && edge.block == twice && !GetBlockPredecessor(large, 1, &edge));
    CHECK(GetBlockSuccessor(large, 0, &edge) && edge.kind == EDGE_RETURN && edge.block == NULL);
    CHECK(BlockDominates(sum, end) && !BlockDominates(large, small) && BlockPostDominates(end, sum));
    CHECK(GetBlockDominator(end) == circle && GetBlockDominator(sum) == NULL);
    CHECK(GetBlockPostDominator(sum) == circle && GetBlockPostDominator(end) == NULL);
    CHECK(IsBlockReachable(end) && !IsBlockAddressTaken(circle) && IsBlockAddressTaken(GetFirstBlock(named("main"))));
    CHECK(GetProcEntry(named("sum"), 0) == sum && GetProcEntry(named("sum"), 1) == NULL);
    CHECK(GetProcStart(named("sum"), 0) == sum && GetProcStart(named("sum"), 1) == NULL);
    CHECK(GetProcLoop(named("sum"), 0, &loop) && loop.header == circle && loop.parent == -1 && loop.depth == 1);
    CHECK(loop.latches == 1 && loop.blocks == 1 && !loop.irreducible && !GetProcLoop(named("sum"), 1, &loop));
    CHECK(GetLoopBlock(named("sum"), 0, 0) == circle && GetLoopBlock(named("sum"), 0, 1) == NULL);
    CHECK(GetLoopLatch(named("sum"), 0, 0) == circle && GetLoopLatch(named("sum"), 1, 0) == NULL);
    CHECK(GetBlockLoop(circle) == 0 && GetBlockLoop(end) == -1);
}

static void instructions(void) {
    Block *start = GetFirstBlock(named("main")), *last = GetLastBlock(named("main"));
    Block *twice = GetFirstBlock(named("twice")), *circle = GetNextBlock(GetFirstBlock(named("sum")));
    Inst *push = GetFirstInst(start), *sub = nth(start, 1), *call = GetLastInst(start), *jle = GetLastInst(twice);
    Inst *store = nth(last, 1), *add = nth(last, 2), *ret = GetLastInst(last), *jne = GetLastInst(circle);
    Inst *addsd = nth(GetNextBlock(circle), 1), *convert = nth(GetNextBlock(circle), 0);
    Inst *lea = GetFirstInst(GetNextBlock(twice));
    long value;
    unsigned char bytes[4] = {0};
    SourceFrame frame;

    CHECK(IsInstType(push, InstTypeStore) && !IsInstType(push, InstTypeLoad));
    CHECK(IsInstType(add, InstTypeLoad) && IsInstType(add, InstTypeStore) && IsInstType(add, InstTypeAdd));
    CHECK(IsInstType(sub, InstTypeSub) && IsInstType(jle, InstTypeCondBr) && !IsInstType(jle, InstTypeUncondBr));
    CHECK(IsInstType(ret, InstTypeJump) && IsInstType(ret, InstTypeRet) && IsInstType(call, InstTypeCall));
    CHECK(!IsInstType(call, InstTypeMul) && !IsInstType(call, InstTypeDiv) && !IsInstType(call, InstTypeSyscall));
    CHECK(GetInstClass(push) == ClassStore && GetInstClass(add) == ClassIarithmetic && GetInstClass(jle) == ClassIbranch);
    CHECK(GetInstClass(call) == ClassSubroutine && GetInstClass(addsd) == ClassFpop && GetInstClass(store) == ClassStore);
    CHECK(GetInstBranchTarget(jne) == GetFirstInst(circle) && GetInstTargetPC(jne) == BlockPC(circle));
    CHECK(GetInstBranchTarget(ret) == NULL && GetInstTargetPC(push) == 0);
    TEXT(GetInstProcCalled(call), "twice");
    CHECK(GetInstCalledProc(call) == named("twice") && GetInstEnteredProc(call) == named("twice"));
    CHECK(GetInstEnteredImport(call) == NULL);
    /* push rbx is 53; sub rsp, 32 is 48 83 ec 20. */
    CHECK((GetInstBinary(InstPC(push)) & 0xff) == 0x53 && GetInstBinary(InstPC(sub)) == 0x20ec8348);
    CHECK(GetInstInfo(sub, InstBinary) == 0x20ec8348 && GetInstInfo(push, InstBinary) == 0x53);
    CHECK(GetBytes(InstPC(sub), 4, bytes) == 4 && bytes[3] == 0x20);
    CHECK(InstLineNo(sub) == InstLineNo(push) + 1 && InstLineNo(jle) > 0);
    CHECK(strstr(InstFileName(sub), "known.s"));
    CHECK(GetSourceFrame(InstPC(sub), 0, &frame) && frame.line == InstLineNo(sub) && !GetSourceFrame(InstPC(sub), 1, &frame));
    TEXT(InstMnemonic(sub), "sub");
    CHECK(strncmp(InstText(sub), "sub rsp", 7) == 0 && strstr(InstISA(addsd), "SSE2"));

    CHECK(GetInstInfo(store, InstMemDisp) == 8 && GetInstInfo(jle, InstBrDisp) == 4);
    CHECK(GetInstInfo(sub, InstRA) == REG_RSP && GetInstInfo(addsd, InstRB) == 0 && GetInstInfo(sub, InstOpcode) == 0x83);
    CHECK(GetInstInfo(addsd, InstOpcodeMap) == 1 && GetInstInfo(addsd, InstEncoding) == 0);
    CHECK(GetInstInfo(sub, InstImmediate) == 32 && GetInstInfo(sub, InstImmediateSize) == 1);
    CHECK(GetInstInfo(store, InstMemDispSize) == 1 && GetInstInfo(sub, InstOperandCount) == 2);
    CHECK(!FindInstInfo(sub, InstMemDisp, &value) && FindInstInfo(sub, InstImmediate, &value) && value == 32);
    CHECK(!FindInstInfo(sub, InstRepeat, &value) && !FindInstInfo(addsd, InstMaskRegister, &value));
    CHECK(!FindInstInfo(sub, InstRC, &value));
    CHECK(GetInstRegEnum(sub, InstRA) == REG_SP && GetInstRegEnum(addsd, InstRA) == FREG_0);
    CHECK(GetInstRegEnum(sub, InstRB) == REG_NOTUSED);
    TEXT(RegName(FREG_31), "xmm31");
    TEXT(RegName(REG_RBX), "rbx");
    CHECK(lea && convert);
}

static void operands(void) {
    Block *last = GetLastBlock(named("main")), *circle = GetNextBlock(GetFirstBlock(named("sum")));
    Inst *store = nth(last, 1), *add = nth(last, 2), *dec = nth(circle, 1), *addsd = nth(GetNextBlock(circle), 1);
    Inst *lea = GetFirstInst(GetNextBlock(GetFirstBlock(named("twice"))));
    InstRegUsageVec usage;
    InstMemory memory;
    InstOperand operand;
    InstRegAccess access;
    InstFloatOps ops;
    GetInstRegUsage(lea, &usage);
    CHECK(UseRegBitVec(&usage)[0] == 1 << REG_RDI && DestRegBitVec(&usage)[0] == 1 << REG_RAX);
    CHECK(UseRegBitVec(&usage)[1] == 0 && usage.rreg_bitvec[0] == 1 << REG_RAX && usage.flags_written == 0);
    GetInstRegUsage(dec, &usage);
    CHECK(usage.flags_written == 0x8d4 && usage.flags_read == 0 && usage.flags_undefined == 0);
    GetInstRegUsage(GetNextInst(dec), &usage);
    CHECK(usage.flags_read == 1 << 6 && DestRegBitVec(&usage)[0] == 1 << REG_PC);
    CHECK(GetInstMemory(add, 0, &memory) && memory.access == (ACCESS_READ | ACCESS_WRITE) && memory.size == 4);
    CHECK(memory.base == REG_SP && memory.index == REG_NOTUSED && memory.displacement == 8 && memory.count == 1);
    CHECK(memory.segment == REG_NOTUSED && memory.flags == 0 && memory.bit_offset == REG_NOTUSED);
    CHECK(!GetInstMemory(add, 1, &memory) && !GetInstMemory(add, -1, &memory) && !GetInstMemory(lea, 0, &memory));
    CHECK(GetInstMemory(GetFirstInst(GetFirstBlock(named("main"))), 0, &memory) && memory.flags == MEMORY_IMPLICIT);
    CHECK(GetInstOperand(store, 0, &operand) && operand.kind == OPERAND_MEMORY && operand.access == ACCESS_WRITE);
    CHECK(GetInstOperand(store, 1, &operand) && operand.kind == OPERAND_CONSTANT && operand.value == 7);
    CHECK(GetInstOperand(addsd, 0, &operand) && operand.kind == OPERAND_REGISTER && operand.reg == FREG_0);
    CHECK(GetInstOperand(GetNextInst(dec), 0, &operand) && operand.kind == OPERAND_TARGET && operand.value == BlockPC(circle));
    CHECK(!GetInstOperand(store, 2, &operand));
    CHECK(GetInstRegAccess(dec, 0, &access) && access.reg == REG_RDI && access.offset == 0);
    CHECK(GetInstFloatOps(addsd, &ops) && ops.precision == 64 && ops.numbers == 1 && ops.each == 1 && ops.vector == 0);
    CHECK(!GetInstFloatOps(add, &ops));
    CHECK(InstOffers(add, InstBefore, LoadedValue) && !InstOffers(add, InstBefore, BrCondValue));
    CHECK(InstOffers(GetNextInst(dec), InstBefore, BrCondValue) && !InstOffers(GetNextInst(dec), InstAfter, BrCondValue));
    CHECK(InstOffers(add, InstBefore, EffAddrOf(0)) && !InstOffers(add, InstBefore, EffAddrOf(1)));
    CHECK(!InstOffers(add, InstBefore, ArgumentOf(0)) && !InstOffers(add, InstBefore, ReturnAddress));
    CHECK(!InstOffers(add, InstBefore, SystemCallNumber) && !InstOffers(add, InstBefore, SystemCallArgument(0)));
    CHECK(!InstOffers(add, InstAfter, SystemCallResult));
}

static void calls(void) {
    Proc *sum = named("sum");
    Block *circle = GetNextBlock(GetFirstBlock(sum)), *last = GetLastBlock(named("main"));
    Inst *add = nth(last, 2), *jne = GetLastInst(circle);
    Data *counters = MakeCounters(3), *marks = MakeMarks(2);
    long state[2] = {100, 0}, after;
    Data *threads = MakeThreadData(state, sizeof state);
    char letters[3] = {'a', 'b', -1};
    int ints[2] = {-2000000000, 7};
    long longs[3] = {1L << 40, -1, 0};

    AddCallProto("Begin(char, int, long, char *)");
    AddCallProto("Arrays(char[3], int[2], long[3])");
    AddCallProto("Many(int, long, char *, int, long, int, long, int)");
    AddCallProto("Registers(REGV, REGV, REGV)");
    AddCallProto("Branch(VALUE, COUNTER, COUNTER)");
    AddCallProto("Access(VALUE, VALUE, VALUE, VALUE, MARK)");
    AddCallProto("Entered(THREAD, VALUE, VALUE, long)");
    AddCallProto("Returned(THREAD, VALUE)");
    AddCallProto("InBlock(int)");
    AddCallProto("OnWay(int)");
    AddCallProto("Sum(VALUE)");
    AddCallProto("End(COUNTERS, MARKS, THREADS, ADDRESS, long)");
    AddCallProgram(ProgramBefore, "Begin", 'c', -5, 1L << 50, "some text");
    AddCallProgram(ProgramBefore, "Arrays", letters, ints, longs);
    AddCallProgram(ProgramBefore, "Many", 1, 2L, "three", 4, 5L, 6, 7L, 8);
    AddCallInst(jne, InstBefore, "Branch", BrCondValue, CounterAt(counters, 0), CounterAt(counters, 1));
    AddCallInst(GetFirstInst(circle), InstBefore, "Registers", REG_RDI, REG_PC, HighHalf(FREG_0));
    AddCallInst(GetFirstInst(circle), InstBefore, "Sum", ValueOfSum(REG_RDI, REG_RDI, 4, 10));
    AddCallInst(GetFirstInst(circle), InstBefore, "Sum", ValueOfSum(REG_NOTUSED, REG_RDI, 8, -100));
    AddCallInst(add, InstBefore, "Access", EffAddrValue, EffAddrOf(0), LoadedValue, AccessSize, MarkAt(marks, 1));
    AddCallInst(add, InstAfter, "Access", StoredValue, StoredValueOf(0), StoredValue, StoredValue, MarkAt(marks, 1));
    after = BlockPC(GetNextBlock(GetNextBlock(GetFirstBlock(named("main")))));
    AddCallProc(sum, ProcBefore, "Entered", threads, ArgumentOf(0), ReturnAddress, after & 0xfff);
    AddCallProc(sum, ProcAfter, "Returned", threads, ReturnValue);
    AddCallBlock(circle, BlockBefore, "InBlock", 1);
    AddCallBlock(circle, BlockAfter, "InBlock", 2);
    CHECK(BlockHasWay(GetFirstBlock(sum), WayEntry) && !BlockHasWay(circle, WayEntry));
    CHECK(BlockHasWay(circle, WayTaken) && BlockHasWay(circle, WayFalling));
    CHECK(EdgeWay(EDGE_FALL) == WayFalling && EdgeWay(EDGE_TAKEN) == WayTaken && EdgeWay(EDGE_CALL_RETURN) == WayFalling);
    CHECK(EdgeWay(EDGE_TABLE) == -1 && EdgeWay(EDGE_UNWIND) == -1);
    AddCallWay(circle, WayTaken, "OnWay", 1);
    AddCallWay(circle, WayFalling, "OnWay", 2);
    AddCallWay(GetFirstBlock(sum), WayEntry, "OnWay", 3);
    AddCallProgram(ProgramAfter, "End", counters, marks, threads, ProcPC(sum), ProcPC(sum));
}

void Instrument(int argc, char **argv, Obj *o) {
    navigation();
    program(argc, argv, o);
    procedures();
    flow();
    instructions();
    operands();
    calls();
    printf("%d checks, %d failed\n", checks, failures);
}
