//! nvJPEG's objects, each owned and destroyed once, and the words that both engines share.

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

/// Red, green and blue beside each other, gray repeated.
pub(super) const INTERLEAVED: nvjpegOutputFormat_t = RGBI;
/// Brightness and two planes of colour, as many values of it as the file has.
pub(super) const PLANES: nvjpegOutputFormat_t = YUV;
/// For `set_roi`: all of the image.
pub(super) const WHOLE: [c_int; 4] = [0, 0, -1, -1];
/// Bytes of such a pixel.
pub(super) const PIXEL: usize = 3;

/// A JPEG on its way to nvJPEG, and what its header says.
#[derive(Clone, Copy, Debug)]
pub struct Coded<'a> {
    /// The whole file.
    pub file: &'a [u8],
    /// Rows of the image.
    pub height: u32,
    /// Columns of the image.
    pub width: u32,
    /// What colour it holds.
    pub chroma: Chroma,
    /// Offset in the file of the two bytes that tell its height.
    pub height_at: usize,
}

impl<'a> Coded<'a> {
    /// A file with its header.
    #[must_use]
    pub fn new(file: &'a [u8], header: &Header) -> Self {
        let (height, width, height_at) = (header.height(), header.width(), header.height_at());
        Self { file, height, width, height_at, chroma: Chroma::of(header) }
    }

    /// A sequential file; `None` when it is none.
    #[must_use]
    pub fn parse(file: &'a [u8]) -> Option<Self> {
        let header = Header::parse(file).ok().filter(|header| !header.is_progressive())?;
        Some(Self::new(file, &header))
    }
}

/// What colour a JPEG holds beside its brightness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chroma {
    /// None.
    Gray,
    /// A value for each so many pixels across and down, 1 or 2.
    Each([u32; 2]),
    /// What engines do not take.
    Other,
}

impl Chroma {
    /// That of a file.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        match (header.colour(), header.sampling()) {
            (Colour::Gray, Some(_)) => Self::Gray,
            (Colour::YCbCr, Some((across @ 1..=2, down @ 1..=2))) => Self::Each([across.into(), down.into()]),
            _ => Self::Other,
        }
    }

    /// Rows and columns of each plane of colour of so many rows and columns of pixels.
    pub(super) const fn size(self, [rows, columns]: [u32; 2]) -> [u32; 2] {
        match self {
            Self::Each([across, down]) => [rows.div_ceil(down), columns.div_ceil(across)],
            Self::Gray | Self::Other => [0; 2],
        }
    }
}

/// Why pixels were not made.
#[derive(Clone, Debug)]
pub enum Failure {
    /// These images, or this way of decoding them: another way may do, and so may other images this way.
    Images(Error),
    /// The GPU: nothing works any more.
    Lost(Error),
}

impl Failure {
    /// Tells the two apart after a call of nvJPEG failed, which it does not, and makes the upload ready for other work.
    pub(super) fn after(error: Error, upload: &mut UploadStream) -> Self {
        match upload.quiesce() {
            Ok(()) => Self::Images(error),
            Err(lost) => Self::Lost(lost),
        }
    }
}

/// nvJPEG with one backend, on one GPU. Used on one thread, as all that is made of it.
pub(super) struct Handle {
    library: &'static Library,
    context: Context,
    raw: nvjpegHandle_t,
}

impl Handle {
    /// The inner error is the reason why the GPU has no engine for `backend`.
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
            Some(note) => error.hint(note),
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
        // SAFETY: made in `new`, destroyed once; what was made of it held it alive.
        let _ = unsafe { (self.calls().nvjpegDestroy)(self.raw) };
    }
}

/// What the engines lack besides, where a library reaches them by another that is not there.
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
    /// What a decode keeps: one decode at a time.
    DecodeState: nvjpegJpegState_t, ends by nvjpegJpegStateDestroy;
    /// A parsed bitstream.
    JpegStream: nvjpegJpegStream_t, ends by nvjpegJpegStreamDestroy;
    /// How to decode.
    Params: nvjpegDecodeParams_t, ends by nvjpegDecodeParamsDestroy;
    /// One way of decoding of the decoupled calls.
    Decoder: nvjpegJpegDecoder_t, ends by nvjpegDecoderDestroy;
    /// Page-locked memory that grows as nvJPEG needs it.
    PinnedBuffer: nvjpegBufferPinned_t, ends by nvjpegBufferPinnedDestroy;
    /// Device memory that grows as nvJPEG needs it.
    DeviceBuffer: nvjpegBufferDevice_t, ends by nvjpegBufferDeviceDestroy;
}

impl DecodeState {
    /// For batches.
    pub(super) fn batched(handle: &Rc<Handle>) -> Result<Self> {
        let _bound = handle.context.bind()?;
        let mut raw: nvjpegJpegState_t = ptr::null_mut();
        // SAFETY: the handle lives; `raw` outlives the call.
        let status = unsafe { (handle.calls().nvjpegJpegStateCreate)(handle.raw, &raw mut raw) };
        check("nvjpegJpegStateCreate", status)?;
        Ok(Self { handle: Rc::clone(handle), raw })
    }

    /// For the decoupled calls with this decoder.
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

    /// Parses a file and checks that its image has the size that was set aside for it.
    ///
    /// # Safety
    /// `file` stays as it is until the last call that is given this stream.
    pub(super) unsafe fn parse(&mut self, file: &[u8], height: u32, width: u32) -> Result<()> {
        let calls = self.handle.calls();
        let (start, len) = (file.as_ptr(), file.len());
        // SAFETY: the file's bytes are readable; the caller keeps them.
        let status = unsafe { (calls.nvjpegJpegStreamParse)(self.handle.raw, start, len, 0, 0, self.raw) };
        check("nvjpegJpegStreamParse", status)?;
        self.has_size(height, width)
    }

    /// The same for its header alone: enough for questions, not for a decode with this stream.
    ///
    /// # Safety
    /// As [`parse`](Self::parse).
    pub(super) unsafe fn parse_header(&mut self, file: &[u8], height: u32, width: u32) -> Result<()> {
        let calls = self.handle.calls();
        let (start, len) = (file.as_ptr(), file.len());
        // SAFETY: the file's bytes are readable; the caller keeps them.
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
            let what = format!("nvJPEG sees {w}x{h} pixels where the header says {width}x{height}");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(())
    }

    /// The process that the image was coded by. The stream was parsed.
    pub(super) fn encoding(&self) -> Result<nvjpegJpegEncoding_t> {
        let mut encoding = 0;
        // SAFETY: the stream lives; the number outlives the call.
        let status = unsafe { (self.handle.calls().nvjpegJpegStreamGetJpegEncoding)(self.raw, &raw mut encoding) };
        check("nvjpegJpegStreamGetJpegEncoding", status).map(|()| encoding)
    }
}

impl Params {
    /// The whole image, whatever EXIF says about up and down.
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

    /// Four components are cyan, magenta, yellow and black, and become RGB.
    pub(super) fn allow_ink(&mut self) -> Result<()> {
        // SAFETY: the parameters live.
        let status = unsafe { (self.handle.calls().nvjpegDecodeParamsSetAllowCMYK)(self.raw, 1) };
        check("nvjpegDecodeParamsSetAllowCMYK", status)
    }

    /// The part of the image that is decoded: first column and row, width and height.
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

    /// Whether it decodes a parsed file in this way.
    pub(super) fn supports(&self, stream: &JpegStream, params: &Params) -> Result<bool> {
        let mut refused: c_int = 1;
        // SAFETY: all three live; the stream's bytes do, by the promise to `parse`; the number outlives the call.
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
