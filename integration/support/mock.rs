//! A GPU made of host memory: builds the mock libraries and runs a test on them, in a process of its own.
//!
//! ```text
//! #[test] ─ on_mock(name, env, body) ─▶ the same executable once more, that test only, mock libraries first in its path
//!                                         └ body(&Mock), then: no violations, nothing leaked
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. Nothing runs by itself: work on a stream runs when somebody waits for it, so that a missing wait shows. With
//!    `INFEED_MOCK_SEED` other than 0 some of it also runs earlier, which shows another kind of mistake.
//! 2. nvJPEG decodes nothing before [`Mock::register_decoder`]; then its pixels are the CPU codec's.
//! 3. The test's name is given with its module path: it is how the child finds it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    env,
    ffi::{CStr, CString, c_char, c_int, c_uint},
    fs,
    io::{Read, Seek},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    slice,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use infeed::{
    codec::{ImageCodec, Jpeg, PixelBuffer},
    internal::process,
};
use libloading::Library;
use serde::Deserialize;

use super::children::Watch;

/// Embedded, so that a test binary that was carried elsewhere can build them too.
const SOURCES: [(&str, &str); 18] = [
    ("integration/support/mock/control.cpp", include_str!("mock/control.cpp")),
    ("integration/support/mock/copies.cpp", include_str!("mock/copies.cpp")),
    ("integration/support/mock/decode.cpp", include_str!("mock/decode.cpp")),
    ("integration/support/mock/driver.cpp", include_str!("mock/driver.cpp")),
    ("integration/support/mock/jpeg.h", include_str!("mock/jpeg.h")),
    ("integration/support/mock/kernels.cpp", include_str!("mock/kernels.cpp")),
    ("integration/support/mock/memory.cpp", include_str!("mock/memory.cpp")),
    ("integration/support/mock/mock.h", include_str!("mock/mock.h")),
    ("integration/support/mock/nvjpeg.cpp", include_str!("mock/nvjpeg.cpp")),
    ("integration/support/mock/nvjpeg.h", include_str!("mock/nvjpeg.h")),
    ("integration/support/mock/pixels.cpp", include_str!("mock/pixels.cpp")),
    ("integration/support/mock/probe.h", include_str!("mock/probe.h")),
    ("integration/support/mock/shim.h", include_str!("mock/shim.h")),
    ("integration/support/mock/streams.cpp", include_str!("mock/streams.cpp")),
    ("integration/support/mock/world.h", include_str!("mock/world.h")),
    ("crates/infeed-cuda/src/cuda/colour.cu", include_str!("../../crates/infeed-cuda/src/cuda/colour.cu")),
    ("crates/infeed-cuda/src/cuda/picture.cu", include_str!("../../crates/infeed-cuda/src/cuda/picture.cu")),
    ("crates/infeed-cuda/src/cuda/resample.cu", include_str!("../../crates/infeed-cuda/src/cuda/resample.cu")),
];

const DRIVER: &str = "libcuda.so.1";
const NVJPEG: &str = "libnvjpeg.so.13";
/// Each library and the files that it is made of.
const LIBRARIES: [(&str, &[&str]); 2] = [
    (DRIVER, &["control", "copies", "driver", "kernels", "memory", "streams"]),
    (NVJPEG, &["decode", "nvjpeg", "pixels"]),
];
/// Kinds of objects that may be alive at the end of any test: frameworks share the primary context and never release it.
const STAYS: [&str; 1] = ["context"];
/// `-Bsymbolic`: both have functions of the same name inside. As for the kernels alone, products are fused where the
/// source says so and nowhere else.
const FLAGS: [&str; 8] =
    ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-s", "-Wl,-Bsymbolic"];

/// Set in the child: the test that it runs.
const CHILD: &str = "INFEED_MOCK_CHILD";
/// As an entry of `env`: the driver lacks this function, as an old one would.
pub(crate) const WITHOUT: &str = "INFEED_MOCK_WITHOUT";
/// The child's last words.
const CHECKED: &str = "mock: all checked";
/// As an entry of `env`: milliseconds in which a child that takes no processor time hangs and is killed.
pub(crate) const LIMIT: &str = "INFEED_MOCK_LIMIT";

/// Runs `body` on a fresh mock GPU, in a process of its own; fails if it fails, does something that CUDA forbids, leaks,
/// or hangs. `test` is the test's path (`module::name`). `env` steers the mock from its start (see `control.cpp`).
/// Where there is no C++ compiler it says so and returns.
pub(crate) fn on_mock(test: &str, env: &[(&str, &str)], body: impl FnOnce(&Mock)) {
    let Some((passed, output)) = run(test, env, body) else { return };
    assert!(passed, "{test} failed on the mock GPU:\n{output}");
}

/// As [`on_mock`], for a body that must fail (or die) with these words in its output, or with others behind a `|`: a test of
/// the tests.
pub(crate) fn fails_on_mock(test: &str, env: &[(&str, &str)], words: &str, body: impl FnOnce(&Mock)) {
    let Some((passed, output)) = run(test, env, body) else { return };
    assert!(!passed, "{test} passed on the mock GPU, but had to fail with {words:?}:\n{output}");
    assert!(
        words.split('|').any(|words| output.contains(words)),
        "{test} failed on the mock GPU without saying {words:?}:\n{output}"
    );
}

/// The environment in which a program finds the mock GPU and mock nvJPEG; it exits with 97 if it did something wrong.
/// `None` without a C++ compiler.
pub(crate) fn mock_env() -> Option<Vec<(String, String)>> {
    let folder = libraries()?;
    let mut env = paths(folder);
    env.push(("INFEED_MOCK_STRICT".into(), "1".into()));
    Some(env)
}

fn paths(folder: &Path) -> Vec<(String, String)> {
    let mut path = folder.display().to_string();
    if let Some(rest) = env::var("LD_LIBRARY_PATH").ok().filter(|rest| !rest.is_empty()) {
        path = path + ":" + &rest;
    }
    let nvjpeg = folder.join(NVJPEG).display().to_string();
    vec![("LD_LIBRARY_PATH".into(), path), ("INFEED_NVJPEG".into(), nvjpeg)]
}

/// Folders in `root` with the mock driver alone, and with the mock nvJPEG alone under this name. `None` without a C++
/// compiler.
pub(crate) fn mock_apart(root: &Path, nvjpeg: &str) -> Option<[PathBuf; 2]> {
    let (both, apart) = (libraries()?, ["driver", "nvjpeg"].map(|name| root.join(name)));
    apart.iter().for_each(|folder| fs::create_dir_all(folder).expect("a folder"));
    fs::copy(both.join(DRIVER), apart[0].join(DRIVER)).expect("the driver");
    link(&apart[0]);
    fs::copy(both.join(NVJPEG), apart[1].join(nvjpeg)).expect("nvJPEG");
    Some(apart)
}

/// In the child: runs the body and does not come back. In the parent: whether the child passed, and what it printed.
fn run(test: &str, env: &[(&str, &str)], body: impl FnOnce(&Mock)) -> Option<(bool, String)> {
    if env::var(CHILD).is_ok_and(|name| name == test) {
        let mock = Mock::new();
        body(&mock);
        mock.check();
        told(CHECKED);
        // Not back into the test, which may be about to start another child.
        std::process::exit(0);
    }
    let folder = libraries()?;
    let entry = |name| env.iter().find(|entry| entry.0 == name).map(|entry| entry.1);
    let limit = entry(LIMIT).map_or(super::PATIENCE, |ms| Duration::from_millis(ms.parse().expect("milliseconds")));
    let mut paths = paths(folder);
    if let Some(function) = entry(WITHOUT) {
        paths[0].1 = format!("{}:{}", lacking(folder, function).display(), paths[0].1);
    }
    // A file, not a pipe: nobody reads while it runs.
    let mut output = tempfile::tempfile().expect("a temp file");
    let handle = || Stdio::from(output.try_clone().expect("a second handle"));
    let mut command = Command::new(env::current_exe().expect("this executable has a path"));
    // What a test sees of the mock is what it asks for.
    env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("INFEED_MOCK_")).for_each(|(name, _)| {
        command.env_remove(name);
    });
    let mut child = command
        .args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
        .envs(paths)
        .envs(env.iter().copied())
        .env(CHILD, test)
        .stdin(Stdio::null())
        .stdout(handle())
        .stderr(handle())
        .spawn()
        .expect("this executable starts once more");
    let mut watch = Watch::start();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break Some(status);
        }
        if watch.hangs(&child, limit) {
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut text = Vec::new();
    output.rewind().expect("a file");
    output.read_to_end(&mut text).expect("a file");
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let hung = || format!("nothing done for {limit:?}, or for ever: killed");
    let end = status.map_or_else(hung, |status| status.to_string());
    text = format!("{text}\n({end})");
    // A name that finds no test passes too.
    assert!(!text.contains("running 0 tests"), "no test is called {test:?}");
    Some((status.is_some_and(|status| status.success()) && text.contains(CHECKED), text))
}

/// Tells the parent.
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn told(words: &str) {
    eprintln!("{words}");
}

/// The folder with both libraries, built at the first call. `None`, and a line, without a C++ compiler.
fn libraries() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let compiler = compiler();
        if compiler.is_none() {
            super::skipped("there is no mock GPU without a C++ compiler; install g++ or set CXX");
        }
        compiler.map(|compiler| build(&compiler))
    });
    folder.as_deref()
}

/// The first that answers, of `CXX` and the usual names.
fn compiler() -> Option<String> {
    let named = env::var("CXX").ok().filter(|name| !name.is_empty());
    let names = named.map_or_else(|| vec!["c++".into(), "g++".into(), "clang++".into()], |name| vec![name]);
    names.into_iter().find(|name| {
        let asked = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    })
}

fn build(compiler: &str) -> PathBuf {
    let mut text = format!("{compiler} {FLAGS:?} {LIBRARIES:?}");
    SOURCES.iter().for_each(|(name, source)| text.extend([*name, *source]));
    let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
    // The folder of the build, or any other on a machine that this binary was carried to.
    let root = Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).filter(|root| root.is_dir());
    let root = root.unwrap_or_else(env::temp_dir);
    let done = root.join(format!("infeed-mock-{hash:016x}"));
    if done.join(NVJPEG).exists() {
        return done;
    }
    // Under a name of its own until it is complete: other test processes may be building the same.
    let work = tempfile::tempdir_in(&root).expect("a temp folder");
    for (name, source) in SOURCES {
        let path = work.path().join(name);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        fs::write(path, source).expect("a source");
    }
    let compile = |(library, files): (&str, &[&str])| {
        // With FMA instructions a fused product takes no call.
        #[cfg(target_arch = "x86_64")]
        let fma = std::is_x86_feature_detected!("fma").then_some("-mfma");
        #[cfg(not(target_arch = "x86_64"))]
        let fma: Option<&str> = None;
        Command::new(compiler)
            .args(FLAGS)
            .args(fma)
            .arg(format!("-Wl,-soname,{library}"))
            .args(files.iter().map(|file| format!("integration/support/mock/{file}.cpp")))
            .args(["-o", library, "-ldl"])
            .current_dir(work.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the compiler starts")
    };
    for child in LIBRARIES.map(compile) {
        let output = child.wait_with_output().expect("the compiler ends");
        assert!(output.status.success(), "the mock GPU can't be built:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    link(work.path());
    fs::remove_dir_all(work.path().join("integration")).expect("our own folder");
    fs::remove_dir_all(work.path().join("crates")).expect("our own folder");
    move_to(work, &done);
    done
}

/// cudarc looks for the name without a version first.
fn link(folder: &Path) {
    std::os::unix::fs::symlink(DRIVER, folder.join("libcuda.so")).expect("a link");
}

/// A folder with a driver that lacks a function: its name is misspelt in the table of symbols.
fn lacking(folder: &Path, function: &str) -> PathBuf {
    let done = folder.join(format!("without-{function}"));
    if done.exists() {
        return done;
    }
    let work = tempfile::tempdir_in(folder).expect("a temp folder");
    let mut library = fs::read(folder.join(DRIVER)).expect("the driver");
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<_> = (0..library.len() - name.len()).filter(|&at| library[at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "the mock driver has no {function}");
    places.iter().for_each(|at| library[at + 1] = b'_');
    fs::write(work.path().join(DRIVER), library).expect("the driver");
    link(work.path());
    move_to(work, &done);
    done
}

/// Gives a folder its name once it is complete; fine where another process was faster.
fn move_to(work: tempfile::TempDir, done: &Path) {
    if fs::rename(work.path(), done).is_ok() {
        let _moved = work.keep();
    }
    assert!(done.join(DRIVER).exists(), "{} is there but not complete", done.display());
}

/// The mock GPU of this process.
#[derive(Debug)]
pub(crate) struct Mock {
    driver: Library,
    /// Kinds of objects that may be alive at the end.
    kept: RefCell<Vec<String>>,
    any_kept: Cell<bool>,
    /// How many of the violations the test itself asked for.
    excused: Cell<usize>,
    /// The threads from before the test.
    threads: Vec<u64>,
}

/// What happened so far.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Counts {
    /// By function.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Created and destroyed, by kind: `context`, `stream`, `event`, `module`, `pool`, `device memory`,
    /// `pinned memory`, `nvjpeg handle`, `nvjpeg state`, `nvjpeg buffer`, `nvjpeg stream`, ….
    pub(crate) objects: BTreeMap<String, (u64, u64)>,
    /// `kernels` (also of one kind, by the first word of their names: `kernels picture`), `host_functions`, `bytes_to_device`, `bytes_to_host`, `bytes_on_device`, `device_bytes` and
    /// `pinned_bytes` (alive), `device_bytes_most`, `pinned_bytes_most` (also of one device: `device_bytes_most cuda:1`),
    /// `ignored_waits`, `pending` (queued steps), `decoded_rows` (of nvJPEG's batches), `engine_pixels` (batches of the engines
    /// that are no planes).
    pub(crate) totals: BTreeMap<String, i64>,
}

impl Counts {
    pub(crate) fn calls(&self, function: &str) -> u64 {
        self.calls.get(function).copied().unwrap_or(0)
    }
    pub(crate) fn created(&self, kind: &str) -> u64 {
        self.objects.get(kind).map_or(0, |(created, _)| *created)
    }
    pub(crate) fn alive(&self, kind: &str) -> i64 {
        self.objects.get(kind).map_or(0, |(created, destroyed)| *created as i64 - *destroyed as i64)
    }
    pub(crate) fn total(&self, name: &str) -> i64 {
        self.totals.get(name).copied().unwrap_or(0)
    }
}

type Nth = unsafe extern "C" fn(function: *const c_char, nth: c_int);
type Fail = unsafe extern "C" fn(function: *const c_char, nth: c_int, code: c_int);
type Tell = unsafe extern "C" fn(text: *mut c_char, capacity: usize) -> usize;
type Decode = unsafe extern "C" fn(*const u8, usize, *mut u8, usize, c_uint, c_uint) -> c_int;

impl Mock {
    fn new() -> Self {
        // SAFETY: the mock driver's initialisers do nothing.
        let driver = unsafe { Library::new(DRIVER) }.expect("the mock driver is first in the path");
        let threads = process::threads().iter().map(|thread| thread.id).collect();
        let mock =
            Self { driver, kept: RefCell::default(), any_kept: Cell::new(false), excused: Cell::new(0), threads };
        // SAFETY: `void mock_explain_faults(void)`.
        let explain = unsafe { mock.function::<unsafe extern "C" fn()>("mock_explain_faults") };
        // SAFETY: installs a signal handler that ends in the one before it.
        unsafe { explain() };
        mock
    }

    /// # Safety
    /// `F` must be the C signature of the function called `name`.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller vouches for the type.
        *unsafe { self.driver.get::<F>(name) }.expect("mock.h names it")
    }

    /// The `nth` call of `function` from now (1 is the next, 0 each one) does nothing and returns `code`: a `CUresult`,
    /// or an `nvjpegStatus_t` for a function of nvJPEG.
    pub(crate) fn fail(&self, function: &str, nth: i32, code: i32) {
        let name = CString::new(function).expect("a C name");
        // SAFETY: the prototype of mock.h.
        let fail = unsafe { self.function::<Fail>("mock_fail") };
        // SAFETY: the name ends with a zero and is copied.
        unsafe { fail(name.as_ptr(), nth, code) };
    }

    /// The `nth` call of `function` from now (1 is the next, 0 each one) says that it waited and did not. For
    /// `cuStreamWaitEvent`, `cuStreamSynchronize`, `cuEventSynchronize`, `cuCtxSynchronize`, `cuEventQuery`,
    /// `cuStreamQuery`. `Counts::total("ignored_waits")` tells whether it happened.
    pub(crate) fn ignore_wait(&self, function: &str, nth: i32) {
        let name = CString::new(function).expect("a C name");
        // SAFETY: the prototype of mock.h.
        let ignore = unsafe { self.function::<Nth>("mock_ignore_wait") };
        // SAFETY: the name ends with a zero and is copied.
        unsafe { ignore(name.as_ptr(), nth) };
    }

    /// After `calls` more calls that need a context, all queued work is lost and each call returns 719, on all devices.
    pub(crate) fn lose_device(&self, calls: i32) {
        // SAFETY: the prototype of mock.h.
        let lose = unsafe { self.function::<unsafe extern "C" fn(c_int)>("mock_lose_device") };
        // SAFETY: takes a number.
        unsafe { lose(calls) };
    }

    /// The same for one device, after `calls` more calls in its context. The others go on.
    pub(crate) fn lose_device_of(&self, device: u32, calls: i32) {
        // SAFETY: the prototype of mock.h.
        let lose = unsafe { self.function::<unsafe extern "C" fn(c_int, c_int)>("mock_lose_device_of") };
        // SAFETY: takes numbers.
        unsafe { lose(device as c_int, calls) };
    }

    /// Memory that can be had on each device in all, from now on.
    pub(crate) fn memory_limit(&self, bytes: usize) {
        // SAFETY: the prototype of mock.h.
        let limit = unsafe { self.function::<unsafe extern "C" fn(usize)>("mock_memory_limit") };
        // SAFETY: takes a number.
        unsafe { limit(bytes) };
    }

    /// Runs all that is queued.
    pub(crate) fn settle(&self) {
        // SAFETY: the prototype of mock.h.
        let settle = unsafe { self.function::<unsafe extern "C" fn()>("mock_settle") };
        // SAFETY: may be called at any time.
        unsafe { settle() };
    }

    fn tell(&self, name: &str) -> String {
        // SAFETY: the prototype of mock.h, for both names that are given.
        let tell = unsafe { self.function::<Tell>(name) };
        // SAFETY: asks for the length only. Others may add to it meanwhile, so there is room to spare.
        let mut text = vec![0u8; unsafe { tell(std::ptr::null_mut(), 0) } + (16 << 10)];
        // SAFETY: at most as many bytes as there are, zero-terminated.
        unsafe { tell(text.as_mut_ptr().cast(), text.len()) };
        CStr::from_bytes_until_nul(&text).expect("it ends").to_string_lossy().into_owned()
    }

    pub(crate) fn counts(&self) -> Counts {
        serde_json::from_str(&self.tell("mock_counts")).expect("the mock writes JSON")
    }

    /// What was done that CUDA or nvJPEG forbid, one sentence each.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.tell("mock_violations").lines().map(str::to_owned).collect()
    }

    /// Takes the violations that are expected so far, so that only others fail the test. Each must contain `words`.
    pub(crate) fn expect_violations(&self, count: usize, words: &str) {
        let new = self.violations().split_off(self.excused.get());
        assert_eq!(new.len(), count, "violations: {new:#?}");
        assert!(new.iter().all(|sentence| sentence.contains(words)), "not all say {words:?}: {new:#?}");
        self.excused.set(self.excused.get() + count);
    }

    /// What is alive at the end is not a mistake of this test.
    pub(crate) fn allow_leaks(&self) {
        self.any_kept.set(true);
    }

    /// Objects of this kind (see [`Counts::objects`]) may be alive at the end.
    pub(crate) fn allow_leaks_of(&self, kind: &str) {
        self.kept.borrow_mut().push(kind.to_owned());
    }

    /// From now on nvJPEG's pixels are those of [`Jpeg`]; gray images come as RGB.
    pub(crate) fn register_decoder(&self) {
        let path = env::var_os("INFEED_NVJPEG").expect("set for the child");
        // SAFETY: the mock's initialisers do nothing.
        let library = Box::leak(Box::new(unsafe { Library::new(path) }.expect("the mock nvJPEG loads")));
        for (name, decode) in [("mock_nvjpeg_set_decoder", decode as Decode), ("mock_nvjpeg_set_planes", planes)] {
            // SAFETY: the prototype of pixels.cpp.
            let set = unsafe { library.get::<unsafe extern "C" fn(Decode)>(name) };
            // SAFETY: the function is there as long as the process.
            unsafe { set.expect("pixels.cpp names it")(decode) };
        }
    }

    /// Whether the threads of the loaders have ended, those too that have no name of their own yet.
    fn is_alone(&self) -> bool {
        let threads = process::threads();
        // Linux leaves living threads out of the list when others end meanwhile.
        threads.len() == thread_count()
            && threads.iter().all(|thread| self.threads.contains(&thread.id) || thread.name == "mock-host")
    }

    /// Fails on violations, and on objects that are alive when the loaders' threads have ended, which may be on their way out.
    fn check(&self) {
        let kept = self.kept.borrow();
        let started = Instant::now();
        loop {
            // Before the counts: what is alive behind the last of them stays so.
            let last = self.is_alone();
            self.settle();
            let counts = self.counts();
            let leaked = counts.objects.iter().filter(|(kind, (created, destroyed))| {
                let may = self.any_kept.get() || kept.contains(kind) || STAYS.contains(&kind.as_str());
                created != destroyed && !may
            });
            let leaked: Vec<_> = leaked.collect();
            if leaked.is_empty() {
                break;
            }
            assert!(
                !last && started.elapsed() < super::PATIENCE,
                "leaked on the mock GPU (kind, created, destroyed): {leaked:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
        let violations = self.violations().split_off(self.excused.get());
        assert!(violations.is_empty(), "violations on the mock GPU: {violations:#?}");
    }
}

/// How many threads this process has.
fn thread_count() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    count.and_then(|count| count.trim().parse().ok()).expect("a number")
}

/// Decodes with the CPU's decoder: one plane behind another, 0 if it worked.
unsafe extern "C" fn planes(data: *const u8, len: usize, out: *mut u8, capacity: usize, _: u32, _: u32) -> c_int {
    // SAFETY: the mock nvJPEG gives a file that lives during the call.
    let file = unsafe { slice::from_raw_parts(data, len) };
    // SAFETY: and room for all planes, which nobody else looks at.
    let mut out = unsafe { slice::from_raw_parts_mut(out, capacity) };
    let (mut scratch, mut data) = (infeed_jpeg::Scratch::default(), Vec::new());
    let Ok(header) = infeed_jpeg::Header::parse(file) else { return 1 };
    let all = infeed_jpeg::Window::of_rows(&header, 0..header.height());
    let Ok(planes) = infeed_jpeg::Decoder::new().planes(file, &header, &all, &mut scratch, &mut data) else { return 1 };
    for plane in planes.as_slice() {
        let [rows, columns] = [header.height().div_ceil(plane.step[0]), header.width().div_ceil(plane.step[1])];
        for row in 0..rows {
            let Some((here, rest)) = out.split_at_mut_checked(columns as usize) else { return 1 };
            here.copy_from_slice(&plane.row(&data, row)[..columns as usize]);
            out = rest;
        }
    }
    0
}

/// Decodes with the CPU codec: interleaved RGB, 0 if it worked.
unsafe extern "C" fn decode(
    data: *const u8,
    len: usize,
    rgb: *mut u8,
    capacity: usize,
    width: u32,
    height: u32,
) -> c_int {
    // SAFETY: the mock nvJPEG gives a file that lives during the call.
    let data = unsafe { slice::from_raw_parts(data, len) };
    // SAFETY: and room for all pixels, which nobody else looks at.
    let rgb = unsafe { slice::from_raw_parts_mut(rgb, capacity) };
    let mut pixels = PixelBuffer::default();
    let Ok(info) = Jpeg::new().header(data) else { return 1 };
    if (info.width, info.height) != (width, height) || Jpeg::new().decode(data, &info, 0..height, &mut pixels).is_err()
    {
        return 1;
    }
    let from = &pixels.data[..(width * height) as usize * usize::from(info.channels)];
    match info.channels {
        3 => rgb.copy_from_slice(from),
        1 => rgb.chunks_exact_mut(3).zip(from).for_each(|(pixel, &gray)| pixel.fill(gray)),
        _ => return 1,
    }
    0
}
