//! Places an analysis image in this process, as the start stub would.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use atom_abi::{StartInfo, TOOL_HEADER_SYMBOL, TOOL_MAGIC, ToolHeader};
use atom_core::analysis::AnalysisImage;
use atom_core::tool::ToolFacts;

/// Reads the header of a tool the way `atom` does: by loading it.
pub fn facts(tool: &Path) -> ToolFacts {
    // SAFETY: the fixture has no initialisers that do harm.
    unsafe {
        let library = libloading::Library::new(tool).expect("the tool loads");
        let header = library
            .get::<*const ToolHeader>(TOOL_HEADER_SYMBOL.as_bytes())
            .expect("a header");
        let header: &ToolHeader = &**header;
        assert_eq!(header.magic, TOOL_MAGIC);
        let mut found = std::mem::zeroed::<libc::Dl_info>();
        assert_ne!(
            libc::dladdr(std::ptr::from_ref(header).cast(), &mut found),
            0
        );
        let base = found.dli_fbase as u64;
        let exports = std::slice::from_raw_parts(header.exports, header.export_count);
        let exports = exports
            .iter()
            .map(|e| (e.name.as_str().to_string(), e.address as u64 - base))
            .collect();
        let mut facts = ToolFacts {
            exports,
            start: header.start as usize as u64 - base,
            finish: header.finish as usize as u64 - base,
            thread_enter: header.thread_enter as usize as u64 - base,
            thread_started: header.thread_started as usize as u64 - base,
            thread_block: header.thread_block as usize as u64 - base,
            routines: Vec::new(),
        };
        let plain = AnalysisImage::read(tool, facts.clone()).expect("an image");
        facts.routines = plain
            .symbols
            .iter()
            .filter(|s| s.is_function && s.name.starts_with("fx_"))
            .map(|s| (s.name.clone(), s.address))
            .collect();
        std::mem::forget(library);
        facts
    }
}

/// A tool in place.
pub struct Loaded {
    pub image: AnalysisImage,
    base: u64,
    info: Box<StartInfo>,
    stack: Vec<usize>,
    _strings: Vec<CString>,
}

/// Numbers of ProgramBefore and ProgramAfter calls.
pub static BEFORE: AtomicU64 = AtomicU64::new(0);
pub static AFTER: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn before() {
    BEFORE.fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn after() {
    AFTER.fetch_add(1, Ordering::Relaxed);
}

impl Loaded {
    /// Maps and relocates a tool; `fsgsbase` is the answer that the runtime gets about the kernel.
    pub fn new(tool: &Path, fsgsbase: bool) -> Self {
        let image = AnalysisImage::read(tool, facts(tool)).expect("an image");
        let len = image.end().next_multiple_of(4096) as usize;
        // SAFETY: a fresh mapping, written before it is made executable.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            let at = at.cast::<u8>();
            at.copy_from(image.text.as_ptr(), image.text.len());
            at.add(image.data_start as usize)
                .copy_from(image.data.as_ptr(), image.data.len());
            for slot in &image.relocations {
                let slot = at.add(*slot as usize).cast::<u64>();
                slot.write_unaligned(slot.read_unaligned() + at as u64);
            }
            let text = image.data_start as usize;
            assert_eq!(
                libc::mprotect(at.cast(), text, libc::PROT_READ | libc::PROT_EXEC),
                0
            );
            at as u64
        };
        let tls = image.tls.expect("the fixture has thread-local variables");
        let info = Box::new(StartInfo {
            tls_image: (base + tls.address) as *const u8,
            tls_file_size: tls.file_size as usize,
            tls_mem_size: tls.mem_size as usize,
            tls_align: tls.align as usize,
            init_array: (base + image.init_array) as *const usize,
            init_count: image.init_functions.len(),
            program_before: before,
            program_after: after,
            threads: std::ptr::null(),
            totals: atom_abi::Totals {
                table: std::ptr::null(),
                table_size: 0,
                counters: std::ptr::null_mut(),
                scratch: std::ptr::null_mut(),
                data: std::ptr::null_mut(),
            },
            process: std::ptr::null(),
            run: std::ptr::null(),
            address: 0,
            cells: std::ptr::null(),
            counts: std::ptr::null(),
            count_ranges: 0,
            returns: std::ptr::null(),
            text: std::ptr::null(),
            image: 0,
            boundaries: std::ptr::null(),
            code: base as *const u8,
            code_size: image.text.len(),
            frames: (base + image.eh_frame.start) as *const u8,
            frames_size: (image.eh_frame.end - image.eh_frame.start) as usize,
            control: std::ptr::null(),
        });
        let strings: Vec<CString> = ["application", "argument", "FIXTURE=value", "SECOND=x"]
            .map(|s| CString::new(s).expect("no nulls"))
            .into();
        let at = |i: usize| strings[i].as_ptr() as *const c_char as usize;
        let mut stack = vec![2, at(0), at(1), 0, at(2), at(3), 0];
        for kind in [
            libc::AT_PAGESZ,
            libc::AT_HWCAP,
            libc::AT_RANDOM,
            libc::AT_HWCAP2,
        ] {
            // SAFETY: a query without effect on memory.
            let mut value = unsafe { libc::getauxval(kind) };
            if kind == libc::AT_HWCAP2 && !fsgsbase {
                value &= !2;
            }
            stack.extend([kind as usize, value as usize]);
        }
        stack.extend([0, 0]);
        Self {
            image,
            base,
            info,
            stack,
            _strings: strings,
        }
    }

    pub fn address(&self, name: &str) -> usize {
        let routines = &self.image.facts.routines;
        let found = routines.iter().find(|r| r.0 == name);
        (self.base + found.unwrap_or_else(|| panic!("no routine {name}")).1) as usize
    }

    /// Calls the runtime's start.
    pub fn start(&self) {
        // SAFETY: as the start stub does it.
        unsafe {
            let start: unsafe extern "C" fn(*const StartInfo, *const usize) =
                std::mem::transmute(self.base + self.image.facts.start);
            start(&raw const *self.info, self.stack.as_ptr());
        }
    }

    /// The runtime's finish.
    pub fn finish(&self) -> unsafe extern "C" fn() {
        // SAFETY: the function has this type.
        unsafe {
            std::mem::transmute::<u64, unsafe extern "C" fn()>(self.base + self.image.facts.finish)
        }
    }

    /// A routine as a function of up to three words.
    pub fn routine(&self, name: &str) -> Routine {
        // SAFETY: routines of fewer arguments ignore the rest; without a result, the returned word is undefined.
        unsafe { std::mem::transmute::<usize, Routine>(self.address(name)) }
    }
}

/// See [`Loaded::routine`].
pub type Routine = extern "C" fn(u64, u64, u64) -> u64;
