//! nvJPEG's objects, each owned and destroyed once, and the types that `Hardware` and `Hybrid` share.

use std::{ffi::c_int, ptr, rc::Rc};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_jpeg::{Colour, Header};
use nvjpeg_sys::{
    nvjpegBackend_t, nvjpegBackend_t_NVJPEG_BACKEND_HARDWARE as HARDWARE, nvjpegBufferDevice_t, nvjpegBufferPinned_t,
    nvjpegDecodeParams_t, nvjpegExifOrientation_NVJPEG_ORIENTATION_NORMAL as UPRIGHT, nvjpegHandle_t,
    nvjpegJpegDecoder_t, nvjpegJpegEncoding_t, nvjpegJpegState_t, nvjpegJpegStream_t, nvjpegOutputFormat_t,
    nvjpegOutputFormat_t_NVJPEG_OUTPUT_RGBI as RGBI, nvjpegOutputFormat_t_NVJPEG_OUTPUT_YUV as YUV,
};

use super::{
    ffi::{Calls, Library, library, nvcuvid},
    result::{NO_ENGINE, check, words},
};
use crate::cuda::{Context, UploadStream};

/// Interleaved red, green and blue; gray is repeated.
pub(super) const INTERLEAVED: nvjpegOutputFormat_t = RGBI;
/// Luma and two planes of chroma, with the subsampling of the file.
pub(super) const PLANES: nvjpegOutputFormat_t = YUV;
/// For `set_roi`: the whole image.
pub(super) const WHOLE: [c_int; 4] = [0, 0, -1, -1];
/// Bytes of an interleaved pixel.
pub(super) const PIXEL: usize = 3;

/// A JPEG for nvJPEG, with the needed values of its header.
#[derive(Clone, Copy, Debug)]
pub struct Coded<'a> {
    /// The whole file.
    pub file: &'a [u8],
    /// Rows of the image.
    pub height: u32,
    /// Columns of the image.
    pub width: u32,
    /// Its colour.
    pub chroma: Chroma,
    /// Offset in the file of the two bytes of its height.
    pub height_at: usize,
}

impl<'a> Coded<'a> {
    /// A file with its header.
    #[must_use]
    pub fn new(file: &'a [u8], header: &Header) -> Self {
        let (height, width, height_at) = (header.height(), header.width(), header.height_at());
        Self { file, height, width, height_at, chroma: Chroma::of(header) }
    }

    /// Parses a sequential JPEG; `None` if the file is not one.
    #[must_use]
    pub fn parse(file: &'a [u8]) -> Option<Self> {
        let header = Header::parse(file).ok().filter(|header| !header.is_progressive())?;
        Some(Self::new(file, &header))
    }
}

/// The chroma of a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chroma {
    /// None.
    Gray,
    /// One value per this many pixels across and down, each 1 or 2.
    Each([u32; 2]),
    /// Chroma that engines do not decode.
    Other,
}

impl Chroma {
    /// The chroma of a file.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        match (header.colour(), header.sampling()) {
            (Colour::Gray, Some(_)) => Self::Gray,
            (Colour::YCbCr, Some((across @ 1..=2, down @ 1..=2))) => Self::Each([across.into(), down.into()]),
            _ => Self::Other,
        }
    }

    /// Rows and columns of each plane of chroma, for this many rows and columns of pixels.
    pub(super) const fn size(self, [rows, columns]: [u32; 2]) -> [u32; 2] {
        match self {
            Self::Each([across, down]) => [rows.div_ceil(down), columns.div_ceil(across)],
            Self::Gray | Self::Other => [0; 2],
        }
    }
}

/// Why decoding failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Because of these images, or of this way of decoding them. Another way may work, and other images may work this
    /// way.
    Images(Error),
    /// The GPU is lost: nothing works any more.
    Lost(Error),
}

impl Failure {
    /// Decides which of the two a failed call of nvJPEG is, which its status does not show. Makes the upload ready for
    /// other work.
    pub(super) fn after(error: Error, upload: &mut UploadStream) -> Self {
        match upload.quiesce() {
            Ok(()) => Self::Images(error),
            Err(lost) => Self::Lost(lost),
        }
    }
}

/// nvJPEG with one backend, on one GPU. It and everything made from it is used on one thread.
pub(super) struct Handle {
    library: &'static Library,
    context: Context,
    raw: nvjpegHandle_t,
}

impl Handle {
    /// Makes a handle. The inner error is the reason why the GPU has no engine for `backend`.
    pub(super) fn new(context: &Context, backend: nvjpegBackend_t) -> Result<Result<Rc<Self>, String>> {
        let library = library(context)?;
        let _bound = context.bind()?;
        let (raw, status) = library.create(backend);
        if status == NO_ENGINE {
            let why = words("nvjpegCreateEx", status).err().unwrap_or_default();
            return Ok(Err(
                missing_library(library, backend).map_or_else(|| why.clone(), |note| why.clone() + "; " + &note)
            ));
        }
        check("nvjpegCreateEx", status).map_err(|error| match missing_library(library, backend) {
            Some(note) => error.with_hint(note),
            None => error,
        })?;
        Ok(Ok(Rc::new(Self { library, context: context.clone(), raw })))
    }

    pub(super) fn calls(&self) -> &'static Calls {
        &self.library.calls
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn raw(&self) -> nvjpegHandle_t {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: made in `new`, destroyed once; everything made from it kept it alive.
        let _ = unsafe { (self.calls().nvjpegDestroy)(self.raw) };
    }
}

/// A library that nvJPEG needs to use the engines and that is missing; `None` if none is.
fn missing_library(library: &Library, backend: nvjpegBackend_t) -> Option<String> {
    let needs = backend == HARDWARE && library.found.version.0 >= 13;
    if needs { nvcuvid().err() } else { None }
}

macro_rules! owned {
    ($(#[$doc:meta] $name:ident: $raw:ty, ends by $destroy:ident;)*) => {$(
        #[$doc]
        pub(super) struct $name {
            handle: Rc<Handle>,
            raw: $raw,
        }

        impl $name {
            pub(super) fn raw(&self) -> $raw {
                self.raw
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let Ok(_bound) = self.handle.context.bind() else { return };
                // SAFETY: made in a constructor, destroyed once, before its handle; owners wait for the work on it.
                let _ = unsafe { (self.handle.calls().$destroy)(self.raw) };
            }
        }
    )*};
}

owned! {
    /// The state of a decode: one decode at a time.
    DecodeState: nvjpegJpegState_t, ends by nvjpegJpegStateDestroy;
    /// A parsed bitstream.
    JpegStream: nvjpegJpegStream_t, ends by nvjpegJpegStreamDestroy;
    /// The parameters of a decode.
    Params: nvjpegDecodeParams_t, ends by nvjpegDecodeParamsDestroy;
    /// One implementation of the decoupled calls.
    Decoder: nvjpegJpegDecoder_t, ends by nvjpegDecoderDestroy;
    /// Page-locked memory that grows as nvJPEG needs it.
    PinnedBuffer: nvjpegBufferPinned_t, ends by nvjpegBufferPinnedDestroy;
    /// Device memory that grows as nvJPEG needs it.
    DeviceBuffer: nvjpegBufferDevice_t, ends by nvjpegBufferDeviceDestroy;
}

impl DecodeState {
    /// A state for batches.
    pub(super) fn batched(handle: &Rc<Handle>) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegJpegState_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call.
        let status = unsafe { (handle.calls().nvjpegJpegStateCreate)(handle.raw, &raw mut raw) };
        check("nvjpegJpegStateCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }

    /// A state for the decoupled calls with this decoder.
    pub(super) fn decoupled(decoder: &Decoder) -> Result<Self> {
        let handle = &decoder.handle;
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegJpegState_t = ptr::null_mut();
        // SAFETY: handle and decoder live; `raw` outlives the call.
        let status = unsafe { (handle.calls().nvjpegDecoderStateCreate)(handle.raw, decoder.raw, &raw mut raw) };
        check("nvjpegDecoderStateCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }
}

impl JpegStream {
    pub(super) fn new(handle: &Rc<Handle>) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegJpegStream_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call.
        let status = unsafe { (handle.calls().nvjpegJpegStreamCreate)(handle.raw, &raw mut raw) };
        check("nvjpegJpegStreamCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }

    /// Parses a file and checks that its image has the size for which memory was reserved.
    ///
    /// # Safety
    /// `file` stays alive and unchanged until the last call that uses this stream.
    pub(super) unsafe fn parse(&mut self, file: &[u8], height: u32, width: u32) -> Result<()> {
        let calls = self.handle.calls();
        let (start, len) = (file.as_ptr(), file.len());
        // SAFETY: the file's bytes are readable, and the caller keeps them.
        let status = unsafe { (calls.nvjpegJpegStreamParse)(self.handle.raw, start, len, 0, 0, self.raw) };
        check("nvjpegJpegStreamParse", status)?;
        self.has_size(height, width)
    }

    /// As [`parse`](Self::parse), for the header only: enough for queries, but not for a decode with this stream.
    ///
    /// # Safety
    /// As [`parse`](Self::parse).
    pub(super) unsafe fn parse_header(&mut self, file: &[u8], height: u32, width: u32) -> Result<()> {
        let calls = self.handle.calls();
        let (start, len) = (file.as_ptr(), file.len());
        // SAFETY: the file's bytes are readable, and the caller keeps them.
        let status = unsafe { (calls.nvjpegJpegStreamParseHeader)(self.handle.raw, start, len, self.raw) };
        check("nvjpegJpegStreamParseHeader", status)?;
        self.has_size(height, width)
    }

    fn has_size(&self, height: u32, width: u32) -> Result<()> {
        let (mut w, mut h) = (0, 0);
        // SAFETY: the stream was parsed; both numbers outlive the call.
        let status =
            unsafe { (self.handle.calls().nvjpegJpegStreamGetFrameDimensions)(self.raw, &raw mut w, &raw mut h) };
        check("nvjpegJpegStreamGetFrameDimensions", status)?;
        if (h, w) != (height, width) {
            let what = format!("nvJPEG finds {w}x{h} pixels, but the header says {width}x{height}");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(())
    }

    /// The coding process of the image. The stream must have been parsed.
    pub(super) fn encoding(&self) -> Result<nvjpegJpegEncoding_t> {
        let mut encoding = 0;
        // SAFETY: the stream lives; the number outlives the call.
        let status = unsafe { (self.handle.calls().nvjpegJpegStreamGetJpegEncoding)(self.raw, &raw mut encoding) };
        check("nvjpegJpegStreamGetJpegEncoding", status).map(|()| encoding)
    }
}

impl Params {
    /// Parameters for the whole image, ignoring EXIF's orientation.
    pub(super) fn new(handle: &Rc<Handle>, format: nvjpegOutputFormat_t) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let calls = handle.calls();
        let mut raw: nvjpegDecodeParams_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call.
        let status = unsafe { (calls.nvjpegDecodeParamsCreate)(handle.raw, &raw mut raw) };
        check("nvjpegDecodeParamsCreate", status)?;
        let mut params = Self { handle: Rc::clone(handle), raw };
        // SAFETY: made above.
        let status = unsafe { (calls.nvjpegDecodeParamsSetOutputFormat)(raw, format) };
        check("nvjpegDecodeParamsSetOutputFormat", status)?;
        // SAFETY: made above.
        let status = unsafe { (calls.nvjpegDecodeParamsSetExifOrientation)(raw, UPRIGHT) };
        check("nvjpegDecodeParamsSetExifOrientation", status)?;
        params.set_roi(WHOLE)?;
        Ok(params)
    }

    /// Allows four components (cyan, magenta, yellow and black) and converts them to RGB.
    pub(super) fn allow_ink(&mut self) -> Result<()> {
        // SAFETY: the parameters live.
        let status = unsafe { (self.handle.calls().nvjpegDecodeParamsSetAllowCMYK)(self.raw, 1) };
        check("nvjpegDecodeParamsSetAllowCMYK", status)
    }

    /// Sets the part of the image to decode: first column, first row, width, height.
    pub(super) fn set_roi(&mut self, roi: [c_int; 4]) -> Result<()> {
        let [x, y, width, height] = roi;
        // SAFETY: plain numbers; a part that is not in the image is refused by nvJPEG.
        let status = unsafe { (self.handle.calls().nvjpegDecodeParamsSetROI)(self.raw, x, y, width, height) };
        check("nvjpegDecodeParamsSetROI", status)
    }
}

impl Decoder {
    pub(super) fn new(handle: &Rc<Handle>, backend: nvjpegBackend_t) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegJpegDecoder_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call.
        let status = unsafe { (handle.calls().nvjpegDecoderCreate)(handle.raw, backend, &raw mut raw) };
        check("nvjpegDecoderCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }

    /// Whether it decodes a parsed file with these parameters.
    pub(super) fn supports(&self, stream: &JpegStream, params: &Params) -> Result<bool> {
        let mut refused: c_int = 1;
        // SAFETY: all three live, as do the stream's bytes, as promised to `parse`; the number outlives the call.
        let status = unsafe {
            (self.handle.calls().nvjpegDecoderJpegSupported)(self.raw, stream.raw, params.raw, &raw mut refused)
        };
        check("nvjpegDecoderJpegSupported", status).map(|()| refused == 0)
    }
}

impl PinnedBuffer {
    pub(super) fn new(handle: &Rc<Handle>) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegBufferPinned_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call; a null allocator is the library's own.
        let status = unsafe { (handle.calls().nvjpegBufferPinnedCreate)(handle.raw, ptr::null_mut(), &raw mut raw) };
        check("nvjpegBufferPinnedCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }
}

impl DeviceBuffer {
    pub(super) fn new(handle: &Rc<Handle>) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegBufferDevice_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call; a null allocator is the library's own.
        let status = unsafe { (handle.calls().nvjpegBufferDeviceCreate)(handle.raw, ptr::null_mut(), &raw mut raw) };
        check("nvjpegBufferDeviceCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }
}
