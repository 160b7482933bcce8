//! The GPU's kernels, compiled for the CPU from the same source and called by name.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use infeed::{
    Layout,
    internal::kernels::{
        RowSpec,
        device::{DeviceItem, LaunchShape},
    },
};
use libloading::Library;

/// What has to be compiled, at the places where the files look for each other.
const SOURCES: [(&str, &str); 5] = [
    ("crates/infeed-cuda/src/cuda/colour.cu", include_str!("../../crates/infeed-cuda/src/cuda/colour.cu")),
    ("crates/infeed-cuda/src/cuda/picture.cu", include_str!("../../crates/infeed-cuda/src/cuda/picture.cu")),
    ("crates/infeed-cuda/src/cuda/resample.cu", include_str!("../../crates/infeed-cuda/src/cuda/resample.cu")),
    ("integration/support/mock/shim.h", include_str!("mock/shim.h")),
    ("integration/support/mock/kernels.cpp", include_str!("mock/kernels.cpp")),
];

type Launch = unsafe extern "C" fn(*const c_char, *const c_uint, *const c_uint, c_uint, *const *const c_void) -> c_int;
type Watch = unsafe extern "C" fn(*const c_void, usize, *const c_void, usize);
type Strays = unsafe extern "C" fn() -> c_uint;
type ArgSizes = unsafe extern "C" fn(*const c_char, *mut c_uint, c_int) -> c_int;

/// The kernels of this machine.
pub(crate) struct HostKernels {
    library: Library,
}

impl HostKernels {
    /// Compiled once for all tests; `None`, and a line that says why, where there is no C++ compiler.
    pub(crate) fn get() -> Option<&'static Self> {
        static KERNELS: OnceLock<Option<HostKernels>> = OnceLock::new();
        KERNELS.get_or_init(Self::build).as_ref()
    }

    fn build() -> Option<Self> {
        let Some(compiler) = compiler() else {
            super::skipped("the GPU's kernels don't run on the CPU: no C++ compiler; install g++ or set CXX");
            return None;
        };
        // One folder for each run: two processes may test at a time.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap();
        for (name, text) in SOURCES {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let path = dir.path().join("kernels.so");
        let mut command = Command::new(&compiler);
        command.args(flags()).args(["-fPIC", "-shared", "-o"]).arg(&path).arg(dir.path().join(SOURCES[4].0));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        // The library stays loaded after its file is gone.
        Some(Self { library: load(&path) })
    }

    /// Bytes of each argument; `None` when there is no such kernel.
    pub(crate) fn arg_sizes(&self, name: &CStr) -> Option<Vec<c_uint>> {
        // SAFETY: the function has this signature in kernels.cpp.
        let arg_sizes = unsafe { self.library.get::<ArgSizes>(b"infeed_mock_arg_sizes") }.unwrap();
        let mut sizes = vec![0; 16];
        // SAFETY: `name` ends with 0 and `sizes` has room for 16.
        let count = unsafe { arg_sizes(name.as_ptr(), sizes.as_mut_ptr(), 16) };
        sizes.truncate(usize::try_from(count).ok()?);
        Some(sizes)
    }

    /// How often the kernels that `run` launches on this thread read pixels or tables outside two ranges of addresses.
    pub(crate) fn strays(&self, [first, second]: [(u64, u64); 2], run: impl FnOnce()) -> u32 {
        // SAFETY: the function has this signature in kernels.cpp.
        let watch = unsafe { self.library.get::<Watch>(b"infeed_mock_watch") }.unwrap();
        // SAFETY: the function has this signature in kernels.cpp.
        let strays = unsafe { self.library.get::<Strays>(b"infeed_mock_strays") }.unwrap();
        // SAFETY: the addresses are compared, never read.
        unsafe { watch(first.0 as *const c_void, first.1 as usize, second.0 as *const c_void, second.1 as usize) };
        run();
        // SAFETY: takes nothing and reads a number of this thread.
        unsafe { strays() }
    }

    /// Makes the rows of all items, to the end; gives the driver's status.
    ///
    /// # Safety
    /// Items hold addresses of readable pixels and writable rows, as the head of `kernels::device` says.
    pub(crate) unsafe fn launch(
        &self,
        name: &CStr,
        shape: &LaunchShape,
        items: &[DeviceItem],
        table: &[f32],
        row: &RowSpec,
    ) -> c_int {
        let (items_at, table_at) = (items.as_ptr(), table.as_ptr());
        let numbers = [row.height, row.width, row.channels, u32::from(row.layout == Layout::Nhwc), items.len() as u32];
        assert_eq!(table.len(), 4 * row.channels as usize);
        let mut args: Vec<*const c_void> = vec![(&raw const items_at).cast(), (&raw const table_at).cast()];
        args.extend(numbers.iter().map(|number| std::ptr::from_ref(number).cast::<c_void>()));
        // SAFETY: `args` points to one value for each argument of these kernels; the caller sees to the rest.
        unsafe { self.launch_any(name, shape, &args) }
    }

    /// Runs a kernel to its end; gives the driver's status.
    ///
    /// # Safety
    /// `args` points to a value of each argument of the kernel, and these make sense.
    pub(crate) unsafe fn launch_any(&self, name: &CStr, shape: &LaunchShape, args: &[*const c_void]) -> c_int {
        assert_eq!(self.arg_sizes(name).map(|sizes| sizes.len()), Some(args.len()), "{name:?}");
        // SAFETY: the function has this signature in kernels.cpp.
        let launch = unsafe { self.library.get::<Launch>(b"infeed_mock_launch") }.unwrap();
        // SAFETY: the caller sees to it.
        unsafe { launch(name.as_ptr(), shape.grid.as_ptr(), shape.block.as_ptr(), shape.shared_bytes, args.as_ptr()) }
    }
}

/// The C++ compiler of this machine: `CXX`, or the usual names.
fn compiler() -> Option<PathBuf> {
    let named = std::env::var_os("CXX").map(PathBuf::from);
    let usual = ["g++", "c++", "clang++"].map(PathBuf::from);
    named
        .into_iter()
        .chain(usual)
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Products are fused where the kernel says so and nowhere else. With FMA instructions that takes no call.
fn flags() -> Vec<&'static str> {
    let mut flags = vec!["-std=c++17", "-O2", "-ffp-contract=off"];
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("fma") {
        flags.push("-mfma");
    }
    flags
}

fn load(path: &Path) -> Library {
    // SAFETY: the library was just compiled from our sources; nothing runs when it is loaded.
    unsafe { Library::new(path) }.unwrap()
}
