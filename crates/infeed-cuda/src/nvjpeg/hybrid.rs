//! Decodes single images: those that the engines do not decode.
//!
//! ```text
//! file ─ parse ─ host phase (Huffman) ─▶ pinned buffer ─ transfer ─▶ device buffer ─ device phase ─▶ arena ─ resample ─▶ row
//!                 on this thread: the cost                └──────────────── on the upload's stream ────────────────┘
//! ```
//!
//! Two pages alternate: while the GPU works on one, this thread decodes into the other. Each page has its own buffers,
//! also in device memory: nvJPEG may grow a buffer, which frees the old one, while the stream still works on the
//! previous image. Only the window that the crop reads is decoded, as far as nvJPEG can skip the rest.

use std::{ops::Range, rc::Rc, sync::Arc};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::DeviceTimes,
    rows::Rows,
    types::ImageInfo,
};
use infeed_pixels::kernels::{ChannelTable, RowScratch, RowWork, device::DeviceItem};
use nvjpeg_sys::{
    cudaStream_t, nvjpegBackend_t_NVJPEG_BACKEND_DEFAULT as DEFAULT,
    nvjpegBackend_t_NVJPEG_BACKEND_GPU_HYBRID as GPU_HYBRID, nvjpegBackend_t_NVJPEG_BACKEND_HYBRID as HYBRID,
    nvjpegImage_t,
};

use super::{
    ffi::library,
    result::check,
    safe::{
        Coded, DecodeState, Decoder, DeviceBuffer, Failure, Handle, INTERLEAVED, JpegStream, PIXEL, Params,
        PinnedBuffer, WHOLE,
    },
};
use crate::cuda::{
    Context, DeviceMemory, DevicePixels, HeldWindow, Kernels, Priority, Ticket, UploadSize, UploadStream,
};

const PAGES: usize = 2;
/// Device memory of a page, in images: one for the pixels, two for the coefficients, one for the planes.
const IMAGES: usize = 4;
/// Room for one image per launch.
const UPLOAD: UploadSize = UploadSize { page_bytes: 4 * size_of::<DeviceItem>(), pages: PAGES, scratch_bytes: 0 };
/// Windows begin and end at multiples of this: whole blocks for all common subsamplings.
const BLOCK: u32 = 16;
/// Pixels around the window that interpolated chroma may depend on.
const MARGIN: u32 = 2;

/// Whether nvJPEG works on this GPU.
///
/// # Errors
/// `Device`, with the reason, if it does not.
pub fn usable(context: &Context) -> Result<()> {
    library(context).map(drop)
}

/// The largest images of a [`Hybrid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridSize {
    /// Bytes of the pixels of a whole image.
    pub image_bytes: usize,
    /// Bytes of a file.
    pub file_bytes: usize,
}

impl HybridSize {
    /// Host bytes of a [`Hybrid`]: per page a file, its copy in nvJPEG, and 16-bit coefficients of all pixels. CMYK
    /// images have four coefficients per pixel, where the pixels have three values.
    #[must_use]
    pub const fn host_bytes(&self) -> u64 {
        let file = self.file_bytes.saturating_mul(2);
        let coefficients = self.image_bytes.saturating_mul(8) / PIXEL;
        file.saturating_add(coefficients).saturating_add(UPLOAD.page_bytes).saturating_mul(PAGES) as u64
    }

    /// Device bytes of a [`Hybrid`]: per page an image's pixels, coefficients and planes.
    #[must_use]
    pub const fn device_bytes(&self) -> u64 {
        self.image_bytes.saturating_mul(PAGES * IMAGES).saturating_add(PAGES * UPLOAD.page_bytes) as u64
    }

    /// The largest size, at most `self`, with at most `bytes` device bytes; `None` if images would have less than
    /// `least` bytes.
    #[must_use]
    pub fn within(self, bytes: u64, least: usize) -> Option<Self> {
        let image = bytes.saturating_sub((PAGES * UPLOAD.page_bytes) as u64) / (PAGES * IMAGES) as u64;
        let image = usize::try_from(image).unwrap_or(usize::MAX).min(self.image_bytes);
        (image >= least).then_some(Self { image_bytes: image, ..self })
    }
}

/// nvJPEG's decoder for single images, for one thread.
pub struct Hybrid {
    // Destroyed in this order, after `drop` has waited for the stream.
    pages: [Page; PAGES],
    params: Params,
    /// The first does Huffman decoding on the CPU, the second on the GPU, which pays for large sequential images. Made
    /// when first needed.
    decoders: [Option<Decoder>; 2],
    handle: Rc<Handle>,
    upload: UploadStream,
    size: HybridSize,
    current: usize,
}

struct Page {
    /// One per decoder, made when first needed, as making one takes most of a second.
    states: [Option<DecodeState>; 2],
    pinned: PinnedBuffer,
    device: DeviceBuffer,
    stream: JpegStream,
    arena: DeviceMemory,
    /// The file: nvJPEG reads it until the launch is done.
    file: Vec<u8>,
    used_by: Option<Ticket>,
}

impl Hybrid {
    /// Makes a decoder for images of up to this size.
    ///
    /// # Errors
    /// `Device` and `OutOfMemory`, as CUDA and nvJPEG report them.
    pub fn open(kernels: &Arc<Kernels>, size: HybridSize, steps: RowScratch, tables: &[&ChannelTable]) -> Result<Self> {
        let context = kernels.context();
        let handle = Handle::new(context, DEFAULT)?.map_err(|why| Error::new(ErrorKind::Device, why))?;
        let upload = UploadStream::new(kernels, UPLOAD.with_steps(steps), Priority::High, tables)?;
        let page = || {
            Ok(Page {
                states: [None, None],
                pinned: PinnedBuffer::new(&handle)?,
                device: DeviceBuffer::new(&handle)?,
                stream: JpegStream::new(&handle)?,
                arena: DeviceMemory::new(context, size.image_bytes)?,
                file: Vec::new(),
                used_by: None,
            })
        };
        let pages = [page()?, page()?];
        let mut params = Params::new(&handle, INTERLEAVED)?;
        params.allow_ink()?;
        Ok(Self { pages, params, decoders: [None, None], handle, upload, size, current: 0 })
    }

    /// Decodes the part of an image that `rows` read, and makes row `at` of each of them. `rows` must not be empty.
    /// `on_gpu`: Huffman decoding on the GPU too, if nvJPEG can do that. Waits on the host for the launch before the
    /// last one.
    ///
    /// # Errors
    /// Any failure; then no work on the image is under way.
    ///
    /// # Panics
    /// When `at` is out of range.
    pub fn decode(
        &mut self,
        image: &Coded<'_>,
        on_gpu: bool,
        rows: &[(&RowWork, &Rows)],
        at: usize,
    ) -> Result<Ticket, Failure> {
        let page = &mut self.pages[self.current];
        if let Some(ticket) = page.used_by.take() {
            self.upload.wait(ticket).map_err(Failure::Lost)?;
        }
        let reads = rows.iter().map(|(work, _)| work.reads()).reduce(|[a, b], [c, d]| [hull(&a, &c), hull(&b, &d)]);
        let started = self.start(image, on_gpu, reads.unwrap_or_default()).and_then(|pixels| {
            rows.iter().try_for_each(|(work, out)| self.upload.row_of_device(&pixels, work, out, at))?;
            self.upload.launch()
        });
        match started {
            Ok(ticket) => {
                self.pages[self.current].used_by = Some(ticket);
                self.current = (self.current + 1) % PAGES;
                Ok(ticket)
            }
            Err(error) => Err(Failure::after(error, &mut self.upload)),
        }
    }

    fn start(&mut self, image: &Coded<'_>, on_gpu: bool, [rows, cols]: [Range<u32>; 2]) -> Result<DevicePixels> {
        let Coded { file, height, width, .. } = *image;
        // This also bounds the memory of the host phase, which does not depend on the window.
        let whole = (u64::from(height) * u64::from(width)).saturating_mul(PIXEL as u64);
        if whole > self.size.image_bytes as u64 || file.len() > self.size.file_bytes {
            let what = format!("a JPEG of {width}x{height} pixels and {} bytes is too large for nvJPEG", file.len());
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let (rows, cols) = (blocks(rows, height), blocks(cols, width));
        let held = HeldWindow { info: ImageInfo::interleaved_u8(height, width, PIXEL as u8), rows, cols };
        if held.rows.is_empty() || held.cols.is_empty() {
            return Err(Error::new(ErrorKind::Internal, format!("no window in an image of {width}x{height} pixels")));
        }

        let _bound = self.handle.context().bind()?;
        let page = &mut self.pages[self.current];
        page.file.clear();
        page.file.extend_from_slice(file);
        // SAFETY: the page's copy of the file is written again only after the launch is done.
        unsafe { page.stream.parse(&page.file, height, width) }?;
        let all = (held.rows.len(), held.cols.len()) == (height as usize, width as usize);
        let [x, y, w, h] = [held.cols.start, held.rows.start, held.cols.len() as u32, held.rows.len() as u32];
        self.params.set_roi(if all { WHOLE } else { [x, y, w, h].map(|n| n as i32) })?;

        let mut which = usize::from(on_gpu);
        if !self.supports(which)? {
            which = 1 - which;
            if which == 1 || !self.supports(which)? {
                return Err(Error::new(ErrorKind::Unsupported, "nvJPEG does not decode this kind of JPEG"));
            }
        }
        self.run(which, held)
    }

    fn supports(&mut self, which: usize) -> Result<bool> {
        let decoder = match &mut self.decoders[which] {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new(&self.handle, [HYBRID, GPU_HYBRID][which])?),
        };
        decoder.supports(&self.pages[self.current].stream, &self.params)
    }

    /// Runs the three phases. The context must be current.
    fn run(&mut self, which: usize, held: HeldWindow) -> Result<DevicePixels> {
        let Some(decoder) = &self.decoders[which] else {
            return Err(Error::new(ErrorKind::Internal, "no decoder was made"));
        };
        let page = &mut self.pages[self.current];
        let state = match &mut page.states[which] {
            Some(state) => state,
            none => none.insert(DecodeState::decoupled(decoder)?),
        };
        let pitch = u32::try_from(held.cols.len() * PIXEL)
            .map_err(|_| Error::new(ErrorKind::Unsupported, format!("lines of {} pixels", held.cols.len())))?;
        let pixels = DevicePixels { address: page.arena.address(), pitch, held };
        let mut to = nvjpegImage_t::new();
        to.channel[0] = pixels.address as *mut u8;
        to.pitch[0] = pixels.pitch as usize;

        let (calls, handle, decoder, state) = (self.handle.calls(), self.handle.raw(), decoder.raw(), state.raw());
        let (jpeg, stream): (_, cudaStream_t) = (page.stream.raw(), self.upload.stream().raw().cast());
        // SAFETY: state and buffer live. The page's last launch is done, so no transfer reads the buffer.
        let status = unsafe { (calls.nvjpegStateAttachPinnedBuffer)(state, page.pinned.raw()) };
        check("nvjpegStateAttachPinnedBuffer", status)?;
        // SAFETY: all live; the bytes of the parsed file are the page's.
        let status = unsafe { (calls.nvjpegDecodeJpegHost)(handle, decoder, state, self.params.raw(), jpeg) };
        check("nvjpegDecodeJpegHost", status)?;
        // SAFETY: state and buffer live. The page's last launch is done, so nothing uses the buffer.
        let status = unsafe { (calls.nvjpegStateAttachDeviceBuffer)(state, page.device.raw()) };
        check("nvjpegStateAttachDeviceBuffer", status)?;
        self.upload.mark_decode(false)?;
        // SAFETY: all live; the page stays as it is until the launch is done.
        let status = unsafe { (calls.nvjpegDecodeJpegTransferToDevice)(handle, decoder, state, jpeg, stream) };
        check("nvjpegDecodeJpegTransferToDevice", status)?;
        // SAFETY: all live. `start` checked that the whole image fits the arena, so its window does, and the arena's
        // last launch is done.
        let status = unsafe { (calls.nvjpegDecodeJpegDevice)(handle, decoder, state, &raw mut to, stream) };
        check("nvjpegDecodeJpegDevice", status)?;
        self.upload.mark_decode(true)?;
        Ok(pixels)
    }

    /// Whether a launch is done; then its rows are written.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.upload.is_done(ticket)
    }

    /// Waits for a launch.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.upload.wait(ticket)
    }

    /// Time on the GPU of the launches that finished, as far as `is_done` and `wait` saw, since the last call.
    pub fn take_times(&mut self) -> DeviceTimes {
        self.upload.take_times()
    }
}

/// The smallest range that contains both.
fn hull(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// The window with the pixels that its edges depend on, in whole blocks of an image with `len` pixels in this
/// direction.
fn blocks(window: Range<u32>, len: u32) -> Range<u32> {
    let start = window.start.saturating_sub(MARGIN) / BLOCK * BLOCK;
    let end = window.end.saturating_add(MARGIN).div_ceil(BLOCK).saturating_mul(BLOCK);
    start.min(len)..end.min(len)
}

impl Drop for Hybrid {
    fn drop(&mut self) {
        // Memory must outlive running work. If this wait fails, nothing runs on a lost GPU,
        // or the process is ending and nothing is freed.
        let _ = self.upload.stream().sync();
    }
}

impl std::fmt::Debug for Hybrid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hybrid({:?} on {:?})", self.size, self.handle.context())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_to_whole_blocks_within_the_image() {
        assert_eq!(blocks(18..30, 100), 16..32);
        assert_eq!(blocks(17..31, 100), 0..48);
        assert_eq!(blocks(0..1, 5), 0..5);
        assert_eq!(blocks(90..100, 100), 80..100);
    }
}
