//! The effect of one inserted instruction on the known state.

use crate::x86::{
    ControlFlow, Inst, Instruction, InstructionInfoFactory, InstructionInfoOptions, Memo, Mnemonic,
    OpAccess, OpKind, Register, RflagsBits, is_rip_relative,
};

use super::state::{Base, Own, RSP, STATUS, Slot, State, Value, place};
use crate::live::{RegSet, reg_bit};

/// Bytes below rsp that belong to the program (the red zone of the System V ABI).
const RED_ZONE: i64 = 128;

/// The memory that inserted code may access.
#[derive(Clone, Copy)]
pub struct WritableRanges {
    /// First address of the new segments, and the address after them.
    pub own: (u64, u64),
    /// First address of what the objects of a process share, and the address after it.
    pub shared: (u64, u64),
    /// True if the program keeps nothing below rsp at the point.
    pub no_red_zone: bool,
    /// True if rsp may lead to data at the point, so that nothing below it may change.
    pub is_foreign: bool,
}

impl WritableRanges {
    /// True if an address is one of inserted code's own data.
    fn has(&self, address: u64) -> bool {
        let is_in = |(start, end): (u64, u64)| (start..end).contains(&address);
        is_in(self.own) || is_in(self.shared)
    }
}

/// Why an instruction must not be in inserted code.
pub type Complaint = String;

/// What an instruction writes.
#[derive(Clone, Copy, Default)]
struct Writes {
    /// True if it writes to memory.
    memory: bool,
    /// True if it changes the direction flag.
    direction: bool,
    /// A register that inserted code must not change.
    odd: Option<Register>,
    /// Other registers, and flags.
    registers: RegSet,
}

impl Writes {
    fn of(instruction: &Instruction) -> Self {
        let writes = |access: OpAccess| {
            !matches!(
                access,
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info_options(instruction, InstructionInfoOptions::NONE);
        let flags = instruction.rflags_modified();
        let mut all = Self {
            memory: info.used_memory().iter().any(|m| writes(m.access())),
            direction: flags & RflagsBits::DF != 0,
            ..Self::default()
        };
        for used in info.used_registers().iter().filter(|u| writes(u.access())) {
            let register = used.register();
            let is_odd = register.is_segment_register() || register.is_st() || register.is_k();
            if is_odd || register.is_ymm() || register.is_zmm() {
                all.odd.get_or_insert(register);
            } else {
                all.registers |= reg_bit(register).unwrap_or_default();
            }
        }
        for (bit, flag) in [
            (RflagsBits::CF, RegSet::CF),
            (RflagsBits::PF, RegSet::PF),
            (RflagsBits::AF, RegSet::AF),
            (RflagsBits::ZF, RegSet::ZF),
            (RflagsBits::SF, RegSet::SF),
            (RflagsBits::OF, RegSet::OF),
        ] {
            if flags & bit != 0 {
                all.registers |= flag;
            }
        }
        all
    }
}

/// What instructions write, by their bytes.
#[derive(Default)]
pub struct KnownWrites(Memo<Writes>);

impl KnownWrites {
    /// True if an instruction may change what leads to a caller: memory, rsp, registers that a callee keeps.
    pub fn may_move_frame(&mut self, (instruction, bytes): (&Instruction, &[u8])) -> bool {
        let writes = self.of(instruction, bytes);
        writes.memory || writes.registers.intersects(RegSet::CALLEE_SAVED)
    }

    fn of(&mut self, instruction: &Instruction, bytes: &[u8]) -> Writes {
        let inst = Inst {
            offset: 0,
            len: instruction.len() as u8,
            flow: ControlFlow::FallThrough,
            rip_relative: is_rip_relative(instruction),
            special: false,
        };
        self.0.of(&inst, bytes, || Writes::of(instruction))
    }
}

fn number(register: Register) -> usize {
    register.full_register().number()
}

/// Applies `xchg` of two registers.
fn exchange(state: &mut State, instruction: &Instruction) -> Result<(), Complaint> {
    let [a, b] = [0, 1].map(|operand| number(instruction.op_register(operand)));
    state.gprs.swap(a, b);
    Ok(())
}

/// Applies an instruction that continues to the next one. `bytes` begin with it.
pub fn step(
    state: &mut State,
    (instruction, bytes): (&Instruction, &[u8]),
    writable: &WritableRanges,
    known: &mut KnownWrites,
) -> Result<(), Complaint> {
    use Mnemonic as M;
    let is_gpr64 = |operand: u32| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).is_gpr64()
    };
    match instruction.mnemonic() {
        M::Nop | M::Endbr64 => Ok(()),
        M::Push => {
            let value = if is_gpr64(0) {
                state.gprs[number(instruction.op0_register())]
            } else {
                stack_word(state, instruction)
            };
            push(state, value, writable)
        }
        M::Pop if is_gpr64(0) => {
            let value = pop(state)?;
            state.gprs[number(instruction.op0_register())] = value;
            Ok(())
        }
        M::Pushfq => {
            let value = Value::Word(state.flags, state.direction);
            push(state, value, writable)
        }
        M::Popfq => {
            (state.flags, state.direction) = match pop(state)? {
                Value::Word(flags, direction) => (flags, direction),
                _ => (RegSet::EMPTY, false),
            };
            Ok(())
        }
        M::Mov if is_gpr64(0) && is_gpr64(1) => {
            let value = state.gprs[number(instruction.op1_register())];
            state.gprs[number(instruction.op0_register())] = value;
            Ok(())
        }
        M::Xchg if is_gpr64(0) && is_gpr64(1) => exchange(state, instruction),
        M::Mov | M::Lea if goes_elsewhere(instruction, writable) => {
            go_elsewhere(state, instruction, writable)
        }
        M::Mov if is_gpr64(0) && instruction.op1_kind() == OpKind::Memory => {
            let value = stack_word(state, instruction);
            state.gprs[number(instruction.op0_register())] = value;
            Ok(())
        }
        M::Mov if is_gpr64(1) && instruction.op0_kind() == OpKind::Memory => {
            store_register(state, instruction, writable)
        }
        M::Lea if is_gpr64(0) => {
            let value = sum(state, instruction).unwrap_or(Value::Unknown);
            let to = number(instruction.op0_register());
            state.gprs[to] = value;
            Ok(())
        }
        M::And
            if is_gpr64(0)
                && number(instruction.op0_register()) == RSP
                && instruction.op1_kind() == OpKind::Immediate8to64
                && instruction.immediate8to64() == -16 =>
        {
            align(state)
        }
        M::Movaps | M::Movups | M::Movdqu | M::Movdqa
            if instruction.op0_kind() == OpKind::Memory
                && address(state, instruction).is_some() =>
        {
            let (base, at) = address(state, instruction).unwrap_or((Base::Point, 0));
            store_vector(state, instruction, (base, at), writable)
        }
        M::Movaps | M::Movups | M::Movdqu | M::Movdqa
            if instruction.op1_kind() == OpKind::Memory
                && address(state, instruction).is_some() =>
        {
            let (base, at) = address(state, instruction).unwrap_or((Base::Point, 0));
            let register = number(instruction.op0_register());
            let back = state.load(base, at) == Some(Slot::Vector(register as u8));
            state.xmms = state.xmms & !(1 << register) | u16::from(back) << register;
            Ok(())
        }
        M::Cld => {
            state.direction = false;
            Ok(())
        }
        _ if keeps_flags(state, instruction) => Ok(()),
        _ => other(state, (instruction, bytes), writable, known),
    }
}

/// True for an instruction that goes to a stack of inserted code's own.
fn goes_elsewhere(instruction: &Instruction, writable: &WritableRanges) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Mov if is_own_stack(instruction, writable) => true,
        _ => own_address(instruction, writable).is_some(),
    }
}

/// Follows an instruction that goes to such a stack.
fn go_elsewhere(
    state: &mut State,
    instruction: &Instruction,
    writable: &WritableRanges,
) -> Result<(), Complaint> {
    // The first word of a block is its address.
    let (to, is_block) = match own_address(instruction, writable) {
        Some(top) => (Some(top), false),
        None => (own_word(instruction), true),
    };
    match to.is_some_and(|to| state.go_private(to)) {
        true => Ok(()),
        false if is_block && state.go_on_from_private() => Ok(()),
        false if is_block => new_frame(state, "goes to the routine's stack twice"),
        false => Err("goes to a stack of which it does not come back".into()),
    }
}

/// Follows a store of a general register.
fn store_register(
    state: &mut State,
    instruction: &Instruction,
    writable: &WritableRanges,
) -> Result<(), Complaint> {
    let value = state.gprs[number(instruction.op1_register())];
    match address(state, instruction) {
        Some((base, at)) => store(state, base, at, Slot::Word(value), writable),
        None => {
            elsewhere(state, instruction, writable)?;
            state.kept = own_word(instruction).map(|word| (word, value));
            Ok(())
        }
    }
}

/// Follows an instruction that aligns the stack.
fn align(state: &mut State) -> Result<(), Complaint> {
    state.flags = RegSet::EMPTY;
    match state.gprs[RSP] {
        // The top of a private stack is aligned.
        Value::Aligned(offset) if state.is_private() => {
            state.gprs[RSP] = Value::Aligned(offset & -16);
            Ok(())
        }
        _ => new_frame(state, "aligns the stack twice"),
    }
}

/// True for an instruction that goes to the running thread's stack for analysis routines. Its address is in the
/// thread's block, so it has a gs prefix.
fn is_own_stack(instruction: &Instruction, writable: &WritableRanges) -> bool {
    instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_segment() == Register::GS
        && is_known_address(instruction)
        && writable.has(instruction.memory_displacement64())
}

/// The word that a memory operand names, if its address or its place in the running thread's block is known.
fn own_word(instruction: &Instruction) -> Option<Own> {
    is_known_address(instruction).then(|| Own {
        address: instruction.memory_displacement64(),
        of_thread: instruction.memory_segment() == Register::GS,
    })
}

/// True for a memory operand of which the address is known, or the place in the running thread's block.
fn is_known_address(instruction: &Instruction) -> bool {
    let is_plain =
        instruction.memory_base() == Register::None || instruction.is_ip_rel_memory_operand();
    is_plain && instruction.memory_index() == Register::None
}

/// The address of inserted code's own data that an instruction puts into rsp.
fn own_address(instruction: &Instruction, writable: &WritableRanges) -> Option<Own> {
    let is_to_rsp = instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RSP;
    let address = match instruction.mnemonic() {
        Mnemonic::Lea if is_known_address(instruction) => instruction.memory_displacement64(),
        Mnemonic::Mov => instruction.try_immediate(1).ok()?,
        _ => return None,
    };
    let of_thread = false;
    (is_to_rsp && writable.has(address)).then_some(Own { address, of_thread })
}

/// Follows an instruction that sets rsp to an aligned address, which it may do once.
fn new_frame(state: &mut State, twice: &str) -> Result<(), Complaint> {
    match state.stack_pointer() {
        Some((Base::Point, _)) => {
            state.align();
            Ok(())
        }
        _ => Err(twice.into()),
    }
}

/// Follows a store of a whole vector register to a known place of the stack.
fn store_vector(
    state: &mut State,
    instruction: &Instruction,
    (base, at): (Base, i64),
    writable: &WritableRanges,
) -> Result<(), Complaint> {
    let register = number(instruction.op1_register());
    let slot = if state.xmms >> register & 1 != 0 {
        Slot::Vector(register as u8)
    } else {
        state.forget(base, at, 16);
        Slot::Word(Value::Unknown)
    };
    store(state, base, at, slot, writable)
}

/// Follows an instruction by which flags are kept in ax, or put back; false if it is another.
fn keeps_flags(state: &mut State, instruction: &Instruction) -> bool {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Lahf => {
            state.gprs[0] = Value::Ax(state.flags & STATUS);
        }
        M::Seto if instruction.op0_register() == Register::AL => {
            if let Value::Ax(flags) = &mut state.gprs[0] {
                *flags |= state.flags & RegSet::OF;
            }
        }
        // al is 0 or 1, so this overflows if it is 1.
        M::Add
            if instruction.op0_register() == Register::AL
                && instruction.op1_kind() == OpKind::Immediate8
                && instruction.immediate8() == 127 =>
        {
            state.flags = match state.gprs[0] {
                Value::Ax(flags) => flags & RegSet::OF,
                _ => RegSet::EMPTY,
            };
        }
        M::Sahf => {
            let restored = match state.gprs[0] {
                Value::Ax(flags) => flags & STATUS,
                _ => RegSet::EMPTY,
            };
            state.flags = restored | (state.flags & RegSet::OF);
        }
        _ => return false,
    }
    true
}

/// Applies any other instruction: everything that it writes is unknown afterwards.
fn other(
    state: &mut State,
    (instruction, bytes): (&Instruction, &[u8]),
    writable: &WritableRanges,
    known: &mut KnownWrites,
) -> Result<(), Complaint> {
    let writes = known.of(instruction, bytes);
    if writes.memory {
        match address(state, instruction) {
            Some((base, at)) => {
                let size = instruction.memory_size().size().max(1) as i64;
                may_store(state, base, at, writable)?;
                state.forget(base, at, size);
            }
            None => {
                elsewhere(state, instruction, writable)?;
                let word = own_word(instruction);
                state.kept = state.kept.filter(|kept| Some(kept.0) != word);
            }
        }
    }
    if let Some(odd) = writes.odd {
        return Err(if odd.is_ymm() || odd.is_zmm() {
            format!("changes the upper half of {odd:?}")
        } else {
            format!("changes {odd:?}")
        });
    }
    for n in (0..16).filter(|n| writes.registers.contains(RegSet::gpr(*n))) {
        state.gprs[n] = Value::Unknown;
    }
    state.xmms &= !writes.registers.xmm_mask();
    state.flags = state.flags.without(writes.registers);
    state.direction &= !writes.direction;
    if state.stack_pointer().is_none() {
        return Err("loses the stack pointer".into());
    }
    Ok(())
}

/// The place on the stack that the memory operand names.
fn address(state: &State, instruction: &Instruction) -> Option<(Base, i64)> {
    let base = instruction.memory_base();
    if !base.is_gpr64() || instruction.memory_index() != Register::None {
        return None;
    }
    let (base, at) = place(state.gprs[number(base)])?;
    Some((base, at + instruction.memory_displacement64() as i64))
}

/// The value of a `lea`, if it can be described.
fn sum(state: &State, instruction: &Instruction) -> Option<Value> {
    let base = instruction.memory_base();
    if !base.is_gpr64() || instruction.memory_index() != Register::None {
        return None;
    }
    let disp = instruction.memory_displacement64() as i64;
    match state.gprs[number(base)] {
        Value::Sum(register, offset) => Some(Value::Sum(register, offset + disp)),
        Value::Aligned(offset) => Some(Value::Aligned(offset + disp)),
        _ => None,
    }
}

fn stack_word(state: &State, instruction: &Instruction) -> Value {
    let is_it = |kept: &(Own, Value)| own_word(instruction) == Some(kept.0);
    if let Some((_, value)) = state.kept.filter(is_it) {
        return value;
    }
    match address(state, instruction).and_then(|(base, at)| state.load(base, at)) {
        Some(Slot::Word(value)) => value,
        _ => Value::Unknown,
    }
}

/// Fails if inserted code must not write to a place on the stack.
fn may_store(
    state: &State,
    base: Base,
    at: i64,
    writable: &WritableRanges,
) -> Result<(), Complaint> {
    let limit = if writable.no_red_zone { 0 } else { -RED_ZONE };
    match base {
        Base::Point if writable.is_foreign => {
            return Err(format!(
                "writes to rsp{at:+}, where the program may keep data"
            ));
        }
        Base::Point if at >= limit => {
            return Err(format!("writes to the program's stack at rsp{at:+}"));
        }
        Base::Aligned if at >= 0 => return Err("writes above its frame".into()),
        _ => {}
    }
    if let Some((pointer_base, pointer)) = state.stack_pointer()
        && pointer_base == base
        && at < pointer - RED_ZONE
    {
        return Err("writes where a signal handler's frame may lie".into());
    }
    Ok(())
}

fn store(
    state: &mut State,
    base: Base,
    at: i64,
    slot: Slot,
    writable: &WritableRanges,
) -> Result<(), Complaint> {
    may_store(state, base, at, writable)?;
    state.store(base, at, slot);
    Ok(())
}

/// Fails for a write outside of the stack, unless it goes to the memory of the new segments.
fn elsewhere(
    state: &State,
    instruction: &Instruction,
    writable: &WritableRanges,
) -> Result<(), Complaint> {
    match instruction.memory_segment() {
        // The operand names the running thread's copy of the data, so it is judged as without the
        // segment.
        Register::GS => {}
        Register::FS => return Err("writes to the program's thread-local memory".into()),
        _ => {}
    }
    let base = instruction.memory_base();
    if instruction.is_ip_rel_memory_operand() {
        let address = instruction.ip_rel_memory_address();
        return if writable.has(address) {
            Ok(())
        } else {
            Err(format!("writes to the program's memory at {address:#x}"))
        };
    }
    if base == Register::None && !writable.has(instruction.memory_displacement64()) {
        return Err("writes to a table that is not its own".into());
    }
    let known = |register: Register| {
        register.is_gpr() && !matches!(state.gprs[number(register)], Value::Unknown)
    };
    if base == Register::None && instruction.memory_index() == Register::None {
        let address = instruction.memory_displacement64();
        return if writable.has(address) {
            Ok(())
        } else {
            Err(format!("writes to the program's memory at {address:#x}"))
        };
    }
    if known(base) {
        return Err(format!("writes through the program's {base:?}"));
    }
    Ok(())
}

/// Pushes a word.
pub fn push(state: &mut State, value: Value, writable: &WritableRanges) -> Result<(), Complaint> {
    let Some((base, at)) = state.stack_pointer() else {
        return Err("pushes without a known stack pointer".into());
    };
    move_stack(state, -8);
    store(state, base, at - 8, Slot::Word(value), writable)
}

/// Pops a word.
pub fn pop(state: &mut State) -> Result<Value, Complaint> {
    let Some((base, at)) = state.stack_pointer() else {
        return Err("pops without a known stack pointer".into());
    };
    move_stack(state, 8);
    match state.load(base, at) {
        Some(Slot::Word(value)) => Ok(value),
        _ => Ok(Value::Unknown),
    }
}

/// Drops bytes off the stack, as `ret n` does.
pub fn drop_words(state: &mut State, bytes: u16) {
    move_stack(state, bytes.into());
}

fn move_stack(state: &mut State, by: i64) {
    state.gprs[RSP] = match state.gprs[RSP] {
        Value::Sum(4, offset) => Value::Sum(4, offset + by),
        Value::Aligned(offset) => Value::Aligned(offset + by),
        other => other,
    };
}
