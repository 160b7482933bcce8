//! nvJPEG's functions, all loaded at once. The compiler compares their signatures with the header.

use std::{
    ffi::{c_int, c_uchar, c_uint},
    ptr,
    sync::{Mutex, PoisonError},
};

use infeed_core::error::{Error, ErrorKind, Result, setting::Front};
use libloading::Library as Shared;
use nvjpeg_sys::{
    cudaStream_t, libraryPropertyType, libraryPropertyType_t_MAJOR_VERSION as MAJOR,
    libraryPropertyType_t_MINOR_VERSION as MINOR, libraryPropertyType_t_PATCH_LEVEL as PATCH, nvjpegBackend_t,
    nvjpegBackend_t_NVJPEG_BACKEND_DEFAULT as DEFAULT, nvjpegBufferDevice_t, nvjpegBufferPinned_t,
    nvjpegChromaSubsampling_t, nvjpegDecodeParams_t, nvjpegDevAllocator_t, nvjpegExifOrientation_t, nvjpegHandle_t,
    nvjpegImage_t, nvjpegJpegDecoder_t, nvjpegJpegEncoding_t, nvjpegJpegState_t, nvjpegJpegStream_t,
    nvjpegOutputFormat_t, nvjpegPinnedAllocator_t, nvjpegStatus_t, nvjpegStatus_t_NVJPEG_STATUS_SUCCESS as SUCCESS,
};

use super::{NvJpegLibrary, places::candidates, result::words};
use crate::{
    cuda::{Context, before_exit},
    library::load,
};

type GetProperty = unsafe extern "C" fn(what: libraryPropertyType, value: *mut c_int) -> nvjpegStatus_t;

// The compiler compares the signature with the prototype; no symbol is used.
const _: GetProperty = nvjpeg_sys::nvjpegGetProperty;

macro_rules! calls {
    ($($name:ident($($argument:ty),* $(,)?);)*) => {
        /// Every function of nvJPEG that infeed calls. All exist since nvJPEG 11.9.
        #[allow(non_snake_case)]
        pub(super) struct Calls {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> nvjpegStatus_t,)*
        }

        $(const _: unsafe extern "C" fn($($argument),*) -> nvjpegStatus_t = nvjpeg_sys::$name;)*

        impl Calls {
            #[allow(non_snake_case)]
            fn load(library: &'static Shared, from: &str) -> Result<Self, String> {
                $(
                    // SAFETY: the signature is the prototype's, checked above.
                    let $name = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| format!(concat!("{} lacks ", stringify!($name)), from))?;
                )*
                Ok(Self { $($name: *$name,)* })
            }
        }
    };
}

calls! {
    nvjpegCreateEx(
        nvjpegBackend_t, *mut nvjpegDevAllocator_t, *mut nvjpegPinnedAllocator_t, c_uint, *mut nvjpegHandle_t
    );
    nvjpegDestroy(nvjpegHandle_t);
    nvjpegGetHardwareDecoderInfo(nvjpegHandle_t, *mut c_uint, *mut c_uint);
    nvjpegJpegStateCreate(nvjpegHandle_t, *mut nvjpegJpegState_t);
    nvjpegDecoderStateCreate(nvjpegHandle_t, nvjpegJpegDecoder_t, *mut nvjpegJpegState_t);
    nvjpegJpegStateDestroy(nvjpegJpegState_t);
    nvjpegJpegStreamCreate(nvjpegHandle_t, *mut nvjpegJpegStream_t);
    nvjpegJpegStreamDestroy(nvjpegJpegStream_t);
    nvjpegJpegStreamParse(nvjpegHandle_t, *const c_uchar, usize, c_int, c_int, nvjpegJpegStream_t);
    nvjpegJpegStreamParseHeader(nvjpegHandle_t, *const c_uchar, usize, nvjpegJpegStream_t);
    nvjpegJpegStreamGetFrameDimensions(nvjpegJpegStream_t, *mut c_uint, *mut c_uint);
    nvjpegJpegStreamGetJpegEncoding(nvjpegJpegStream_t, *mut nvjpegJpegEncoding_t);
    nvjpegDecodeParamsCreate(nvjpegHandle_t, *mut nvjpegDecodeParams_t);
    nvjpegDecodeParamsDestroy(nvjpegDecodeParams_t);
    nvjpegDecodeParamsSetOutputFormat(nvjpegDecodeParams_t, nvjpegOutputFormat_t);
    nvjpegDecodeParamsSetROI(nvjpegDecodeParams_t, c_int, c_int, c_int, c_int);
    nvjpegDecodeParamsSetAllowCMYK(nvjpegDecodeParams_t, c_int);
    nvjpegDecodeParamsSetExifOrientation(nvjpegDecodeParams_t, nvjpegExifOrientation_t);
    nvjpegDecoderCreate(nvjpegHandle_t, nvjpegBackend_t, *mut nvjpegJpegDecoder_t);
    nvjpegDecoderDestroy(nvjpegJpegDecoder_t);
    nvjpegDecoderJpegSupported(nvjpegJpegDecoder_t, nvjpegJpegStream_t, nvjpegDecodeParams_t, *mut c_int);
    nvjpegBufferPinnedCreate(nvjpegHandle_t, *mut nvjpegPinnedAllocator_t, *mut nvjpegBufferPinned_t);
    nvjpegBufferPinnedDestroy(nvjpegBufferPinned_t);
    nvjpegBufferDeviceCreate(nvjpegHandle_t, *mut nvjpegDevAllocator_t, *mut nvjpegBufferDevice_t);
    nvjpegBufferDeviceDestroy(nvjpegBufferDevice_t);
    nvjpegStateAttachPinnedBuffer(nvjpegJpegState_t, nvjpegBufferPinned_t);
    nvjpegStateAttachDeviceBuffer(nvjpegJpegState_t, nvjpegBufferDevice_t);
    nvjpegDecodeJpegHost(
        nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t, nvjpegDecodeParams_t, nvjpegJpegStream_t
    );
    nvjpegDecodeJpegTransferToDevice(
        nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t, nvjpegJpegStream_t, cudaStream_t
    );
    nvjpegDecodeJpegDevice(
        nvjpegHandle_t, nvjpegJpegDecoder_t, nvjpegJpegState_t, *mut nvjpegImage_t, cudaStream_t
    );
    nvjpegDecodeBatchedSupportedEx(nvjpegHandle_t, nvjpegJpegStream_t, nvjpegDecodeParams_t, *mut c_int);
    nvjpegDecodeBatchedInitialize(nvjpegHandle_t, nvjpegJpegState_t, c_int, c_int, nvjpegOutputFormat_t);
    nvjpegDecodeBatchedPreAllocate(
        nvjpegHandle_t, nvjpegJpegState_t, c_int, c_int, c_int, nvjpegChromaSubsampling_t, nvjpegOutputFormat_t
    );
    nvjpegDecodeBatchedEx(
        nvjpegHandle_t, nvjpegJpegState_t, *const *const c_uchar, *const usize, *mut nvjpegImage_t,
        *mut nvjpegDecodeParams_t, cudaStream_t
    );
}

/// nvJPEG of this process. Never unloaded.
pub(super) struct Library {
    pub(super) calls: Calls,
    pub(super) found: NvJpegLibrary,
}

impl Library {
    /// Flags of handles that decode.
    fn flags(&self) -> c_uint {
        // Interpolates chroma as libjpeg does, so that pixels equal those of the CPU; by default nvJPEG repeats each
        // value. The flag exists since 12.1.1, which is newer than `nvjpeg-sys`.
        const UPSAMPLING_WITH_INTERPOLATION: c_uint = 1 << 5;
        if interpolates(&self.found) { UPSAMPLING_WITH_INTERPOLATION } else { 0 }
    }

    /// A handle for the GPU whose context is current. The caller must destroy it.
    pub(super) fn create(&self, backend: nvjpegBackend_t) -> (nvjpegHandle_t, nvjpegStatus_t) {
        let mut handle: nvjpegHandle_t = ptr::null_mut();
        // SAFETY: `handle` outlives the call; null allocators are the library's own.
        let status = unsafe {
            (self.calls.nvjpegCreateEx)(backend, ptr::null_mut(), ptr::null_mut(), self.flags(), &raw mut handle)
        };
        (handle, status)
    }

    /// Whether a decoder can be made on the GPU whose context is current, which needs a driver that is new enough.
    fn works(&self) -> Result<(), String> {
        let (handle, status) = self.create(DEFAULT);
        words("nvjpegCreateEx", status).map_err(|why| format!("{}: {why}", self.found.library))?;
        // SAFETY: created above, destroyed once.
        let _ = unsafe { (self.calls.nvjpegDestroy)(handle) };
        Ok(())
    }
}

/// Whether chroma can be upsampled as libjpeg does.
fn interpolates(found: &NvJpegLibrary) -> bool {
    found.version >= (12, 1, 1)
}

/// nvJPEG for this GPU: the library that `INFEED_NVJPEG` names, otherwise the first of the [usual places](candidates)
/// that can make a decoder. Loaded once. After a failure the next call tries again, as it may work on another GPU.
///
/// # Errors
/// `Device`: there is no nvJPEG, it lacks a function, or the driver is too old for it.
pub(super) fn library(context: &Context) -> Result<&'static Library> {
    static LOADED: Mutex<Option<&'static Library>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *loaded {
        return Ok(library);
    }
    let _bound = context.bind()?;
    let path = path();
    let open = |name: &str| {
        let library = open(name)?;
        library.works().map(|()| library)
    };
    let library = match &path {
        Some(path) => open(path).map_err(named)?,
        None => first(&candidates(), open).map_err(unusable)?,
    };
    before_exit();
    let library: &'static Library = Box::leak(Box::new(library));
    *loaded = Some(library);
    Ok(library)
}

fn unusable(why: String) -> Error {
    let install = match Front::here() {
        Front::Python => "pip install 'infeed[cuda]'",
        Front::Library | Front::Command => "install libnvjpeg, or set INFEED_NVJPEG to its path",
    };
    let hint = match why.as_str() {
        why if why.ends_with("not found") => install.to_owned(),
        why if why.contains(" lacks ") => format!("it is older than nvJPEG 11.9: {install}"),
        _ => "update the driver, or install an nvJPEG for its version of CUDA (pip install nvidia-nvjpeg-cu12)".into(),
    };
    Error::new(ErrorKind::Device, why).with_hint(hint)
}

fn named(why: String) -> Error {
    Error::new(ErrorKind::Device, format!("INFEED_NVJPEG: {why}"))
        .with_hint("name another library, or unset INFEED_NVJPEG")
}

/// Opens the first of these names that works. The error is about the first library that exists; if none exists, about
/// the first name.
fn first<T>(names: &[impl AsRef<str>], mut open: impl FnMut(&str) -> Result<T, String>) -> Result<T, String> {
    let mut reason: Option<String> = None;
    for name in names {
        match open(name.as_ref()) {
            Ok(found) => return Ok(found),
            Err(why) => {
                let missing = |why: &String| why.ends_with("not found");
                if reason.as_ref().is_none_or(|before| missing(before) && !missing(&why)) {
                    reason = Some(why);
                }
            }
        }
    }
    Err(reason.unwrap_or_else(|| "no library to look for".into()))
}

fn open(name: &str) -> Result<Library, String> {
    let (library, name) = load(&[name])?;
    Ok(Library { calls: Calls::load(library, &name)?, found: version(library, name)? })
}

/// The library that the user names.
fn path() -> Option<String> {
    std::env::var("INFEED_NVJPEG").ok().filter(|path| !path.is_empty())
}

/// The library, or the reason why there is none.
pub fn find() -> Result<NvJpegLibrary, String> {
    find_at(path().as_deref())
}

/// The version of the library at `path`; without one, of the first library in the usual places.
fn find_at(path: Option<&str>) -> Result<NvJpegLibrary, String> {
    let open = |name: &str| load(&[name]).and_then(|(library, name)| version(library, name));
    // If the user names a path, its failure is an error: never load another library instead.
    match path {
        Some(path) => open(path).map_err(|reason| format!("INFEED_NVJPEG: {reason}")),
        None => first(&candidates(), open),
    }
}

/// Looks for the video decoder library, through which nvJPEG 13 uses the engines. nvJPEG opens it by name
/// (NVIDIA/CUDALibrarySamples#104, #132).
pub fn nvcuvid() -> Result<String, String> {
    let looked = load(&["libnvcuvid.so.1"]);
    looked.map(|(_, name)| name).map_err(|reason| {
        reason + "; nvJPEG 13 needs it for the engines; in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
    })
}

fn version(library: &Shared, name: String) -> Result<NvJpegLibrary, String> {
    // SAFETY: the type is the prototype's, checked above.
    let get = unsafe { library.get::<GetProperty>(c"nvjpegGetProperty".to_bytes_with_nul()) }
        .map_err(|_| format!("{name} lacks nvjpegGetProperty"))?;
    let property = |what| {
        let mut value = 0;
        // SAFETY: `value` outlives the call, which needs no handle, context or GPU.
        let status = unsafe { get(what, &raw mut value) };
        u32::try_from(value)
            .ok()
            .filter(|_| status == SUCCESS)
            .ok_or_else(|| format!("{name} does not report its version"))
    };
    Ok(NvJpegLibrary::new((property(MAJOR)?, property(MINOR)?, property(PATCH)?), name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_reason() {
        assert_eq!(
            find_at(Some("/nowhere/libnvjpeg.so")).unwrap_err(),
            "INFEED_NVJPEG: /nowhere/libnvjpeg.so not found"
        );
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_library_that_is_no_nvjpeg_is_a_reason() {
        assert_eq!(find_at(Some("libc.so.6")).unwrap_err(), "INFEED_NVJPEG: libc.so.6 lacks nvjpegGetProperty");
        assert_eq!(open("libc.so.6").err(), Some("libc.so.6 lacks nvjpegCreateEx".into()));
    }

    #[test]
    fn the_reason_is_that_of_a_library_that_is_there() {
        let open = |name: &str| match name {
            "old" => Err("old: needs a newer driver".to_owned()),
            "good" => Ok(7),
            name => Err(format!("{name} not found")),
        };
        assert_eq!(first(&["a", "old", "good"], open), Ok(7));
        assert_eq!(first(&["a", "old", "b"], open), Err("old: needs a newer driver".into()));
        assert_eq!(first(&["a", "b"], open), Err("a not found".into()));
    }

    #[test]
    fn a_library_that_can_t_be_used_is_told_with_what_to_do() {
        for (why, advice) in [
            ("libnvjpeg.so.13 not found", "install libnvjpeg, or set INFEED_NVJPEG to its path"),
            ("libnvjpeg.so.11 lacks nvjpegJpegStreamParse", "it is older than nvJPEG 11.9: install libnvjpeg"),
            ("libnvjpeg.so.13: the driver is too old for it (nvjpegCreateEx returned 6)", "update the driver, or"),
        ] {
            let error = unusable(why.into());
            assert!(error.hint().is_some_and(|help| help.starts_with(advice)), "{error}");
        }
    }

    #[test]
    fn upsampling_is_told_by_the_version() {
        for (version, expected) in
            [((11, 9, 0), false), ((12, 0, 9), false), ((12, 1, 0), false), ((12, 1, 1), true), ((13, 0, 0), true)]
        {
            let found = NvJpegLibrary::new(version, String::new());
            assert_eq!(interpolates(&found), expected, "{version:?}");
        }
    }

    /// Needs the library of NVIDIA's wheel. It loads on any machine, but does not decode without a GPU.
    #[test]
    fn the_real_library_has_every_function_and_fails_in_words_without_a_gpu() {
        let Some(path) = path() else { return };
        let library = open(&path).unwrap();
        assert!(library.found.version >= (11, 9, 0), "{:?}", library.found);
        if crate::cuda::gpus().is_err() {
            let why = library.works().unwrap_err();
            assert!(why.contains("nvjpegCreateEx returned"), "{why}");
        }
    }
}
