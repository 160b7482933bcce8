//! Ranges on the time line of NVIDIA's profilers (NVTX 3).
//!
//! There is no library to link: a profiler names its own in `NVTX_INJECTION64_PATH`. The program loads that library and
//! passes it a table of empty slots, which the library fills with its functions (<https://github.com/NVIDIA/NVTX>,
//! `nvtxInit.h` and `nvtxTypes.h`). Without a profiler nothing is loaded and a range costs one load of a pointer.

use std::{
    env,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicPtr, Ordering},
    },
};

/// A slot for a function of the profiler.
type Slot = AtomicPtr<c_void>;

/// The most slots of a module, including the one that ends a table.
const MOST: usize = 17;
/// The number of slots of each module, by the module's number; there is no module 0.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
/// The module of ranges without a domain, and the functions of it that are called here.
const CORE: usize = 1;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

static SLOTS: [[Slot; MOST]; SIZES.len()] = [const { [const { AtomicPtr::new(ptr::null_mut()) }; MOST] }; SIZES.len()];

/// For each module the addresses of its slots; the last one is null.
struct Tables([[*const Slot; MOST]; SIZES.len()]);

// SAFETY: it holds addresses of statics, which are atomics.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables(tables());

const fn tables() -> [[*const Slot; MOST]; SIZES.len()] {
    let mut tables = [[ptr::null(); MOST]; SIZES.len()];
    let mut module = 1;
    while module < SIZES.len() {
        // Slot 0 has no function.
        let mut n = 1;
        while n < SIZES[module] {
            tables[module][n] = &raw const SLOTS[module][n];
            n += 1;
        }
        module += 1;
    }
    tables
}

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Version {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };
static VERSION: Version =
    Version { struct_size: size_of::<Version>(), version: 3, reserved: 0, set_injection_version: injection_version };

/// Returns the table that the profiler writes its functions to.
///
/// # Safety
/// `out_table` and `out_size` are null or can be written.
unsafe extern "C" fn module_function_table(
    module: c_int,
    out_table: *mut *const *const Slot,
    out_size: *mut c_uint,
) -> c_int {
    let Some(module) = usize::try_from(module).ok().filter(|module| (1..SIZES.len()).contains(module)) else {
        return 0;
    };
    if !out_size.is_null() {
        // SAFETY: not null, so it can be written, as the caller guarantees.
        unsafe { out_size.write(SIZES[module] as c_uint) };
    }
    if !out_table.is_null() {
        // SAFETY: likewise.
        unsafe { out_table.write(TABLES.0[module].as_ptr()) };
    }
    1
}

extern "C" fn injection_version(_version: u32) {}

/// Returns the tables that the profiler requests.
extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => ptr::null(),
    }
}

/// Loads the profiler's library, once for the process.
fn load() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    let load = || {
        let name = env::var("NVTX_INJECTION64_PATH").map_err(|_| "NVTX_INJECTION64_PATH names no library")?;
        let (library, name) = super::library::load(&[&name])?;
        // SAFETY: the type is that of `NvtxInitializeInjectionNvtxFunc_t`; the library is never unloaded.
        let initialise = unsafe {
            library.get::<unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int>(
                b"InitializeInjectionNvtx2\0",
            )
        };
        let initialise = initialise.map_err(|_| format!("{name} is not a library of an NVTX profiler"))?;
        // SAFETY: it calls the function that it is given, as the interface specifies; the tables are statics.
        let ready = unsafe { initialise(export_table) };
        if ready == 0 {
            // Clear the slots: functions that it may have written must not be called.
            SLOTS.iter().flatten().for_each(|slot| slot.store(ptr::null_mut(), Ordering::Release));
            return Err(format!("{name} did not start"));
        }
        Ok(())
    };
    LOADED.get_or_init(load).clone()
}

/// Loads the profiler's library if there is one.
///
/// # Errors
/// The reason why there are no ranges: there is no profiler, or its library does not load.
pub fn start() -> Result<(), String> {
    load()
}

/// Begins a range on this thread, nested in the one that began before. Does nothing before [`start`].
pub fn push(name: &CStr) {
    let function = SLOTS[CORE][RANGE_PUSH_A].load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: the profiler put a `nvtxRangePushA_impl_fntype` there.
        let push: unsafe extern "C" fn(*const c_char) -> c_int = unsafe { std::mem::transmute(function) };
        // SAFETY: the text ends with a zero and lives through the call.
        unsafe { push(name.as_ptr()) };
    }
}

/// Ends the range of this thread that was begun last. Does nothing before [`start`].
pub fn pop() {
    let function = SLOTS[CORE][RANGE_POP].load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: the profiler put a `nvtxRangePop_impl_fntype` there.
        let pop: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(function) };
        // SAFETY: it takes no arguments; without an open range it returns an error, which is ignored.
        unsafe { pop() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_those_of_the_headers() {
        for (module, size) in SIZES.iter().enumerate() {
            let (mut table, mut told) = (ptr::null(), 0);
            // SAFETY: both can be written.
            let known = unsafe { module_function_table(module as c_int, &raw mut table, &raw mut told) };
            assert_eq!((known != 0, told as usize), (module > 0, *size));
            let slots = TABLES.0[module];
            let filled = slots.iter().filter(|slot| !slot.is_null()).count();
            assert!(filled == size.saturating_sub(1) && slots[0].is_null() && slots[MOST - 1].is_null());
        }
        for module in [-1, 7, c_int::MAX] {
            // SAFETY: both are null.
            assert_eq!(unsafe { module_function_table(module, ptr::null_mut(), ptr::null_mut()) }, 0);
        }
        assert!(export_table(0).is_null() && export_table(2).is_null() && !export_table(3).is_null());
    }

    #[test]
    fn without_a_profiler_ranges_do_nothing() {
        push(c"alone");
        pop();
    }
}
