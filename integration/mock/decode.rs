//! nvJPEG: what the engines overwrite and when, which calls are legal, which images fail.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

use cudarc::driver::sys::CUstream;
use infeed::codec::{ImageCodec, Jpeg, PixelBuffer};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use libloading::Library;

use super::{Gpu, ok};
use crate::support::mock::{Mock, on_mock};

const HYBRID: c_int = 1;
const HARDWARE: c_int = 3;
const RGB: c_int = 3;
const RGBI: c_int = 5;

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_PARAMETER: c_int = 2;
const BAD_JPEG: c_int = 3;
const JPEG_NOT_SUPPORTED: c_int = 4;
const EXECUTION_FAILED: c_int = 6;
const ARCH_MISMATCH: c_int = 7;

const WIDTH: usize = 40;
const HEIGHT: usize = 24;
const BYTES: usize = WIDTH * HEIGHT * 3;

type Object = *mut c_void;

/// `nvjpegImage_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct Image {
    channel: [*mut u8; 4],
    pitch: [usize; 4],
}

impl Image {
    /// Interleaved rows of `WIDTH` pixels.
    fn interleaved(memory: u64) -> Self {
        let start = ptr::with_exposed_provenance_mut(memory as usize);
        Self { channel: [start, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()], pitch: [WIDTH * 3, 0, 0, 0] }
    }
}

/// Calls nvJPEG by name.
macro_rules! nv {
    ($nv:expr, $function:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        // SAFETY: the types are those of nvjpeg.h.
        let function = unsafe { $nv.0.get::<unsafe extern "C" fn($($type),*) -> c_int>(stringify!($function)) };
        // SAFETY: pointers are to locals that outlive the call; the mock refuses handles that are wrong.
        unsafe { function.expect("the mock has it")($($argument),*) }
    }};
}

/// The mock nvJPEG, with the CPU's decoder in it.
struct Nv(Library);

impl Nv {
    fn new(mock: &Mock) -> Self {
        mock.register_decoder();
        let path = std::env::var_os("INFEED_NVJPEG").expect("set for the child");
        // SAFETY: the mock's initialisers do nothing.
        Self(unsafe { Library::new(path) }.expect("the mock nvJPEG"))
    }
    fn handle(&self, backend: c_int) -> Object {
        let mut handle = ptr::null_mut();
        assert_eq!(self.create(backend, &mut handle), SUCCESS);
        handle
    }
    fn create(&self, backend: c_int, handle: &mut Object) -> c_int {
        let none = ptr::null();
        nv!(self, nvjpegCreateEx(backend => c_int, none => *const c_void, none => *const c_void, 0 => c_uint, handle => *mut Object))
    }
    fn state(&self, handle: Object) -> Object {
        let mut state = ptr::null_mut();
        assert_eq!(nv!(self, nvjpegJpegStateCreate(handle => Object, &raw mut state => *mut Object)), SUCCESS);
        state
    }
    fn initialise(&self, handle: Object, state: Object, count: usize, format: c_int) -> c_int {
        let (count, threads) = (count as c_int, 1);
        nv!(self, nvjpegDecodeBatchedInitialize(handle => Object, state => Object, count => c_int, threads => c_int, format => c_int))
    }
    fn batch(&self, (handle, state): (Object, Object), files: &[&[u8]], images: &[Image], stream: CUstream) -> c_int {
        // They must stay until the batch is done, and nobody here knows when that is.
        let data = files.iter().map(|file| file.as_ptr()).collect::<Vec<_>>().leak().as_ptr();
        let lens = files.iter().map(|file| file.len()).collect::<Vec<_>>().leak().as_ptr();
        let images = images.to_vec().leak().as_ptr();
        nv!(self, nvjpegDecodeBatched(handle => Object, state => Object, data => *const *const u8, lens => *const usize, images => *const Image, stream => CUstream))
    }
    fn destroy(&self, handle: Object, states: &[Object]) {
        for &state in states {
            assert_eq!(nv!(self, nvjpegJpegStateDestroy(state => Object)), SUCCESS);
        }
        assert_eq!(nv!(self, nvjpegDestroy(handle => Object)), SUCCESS);
    }
}

/// A JPEG of `WIDTH` x `HEIGHT`, with a comment for the mock if there is one.
fn file(seed: usize, colour: ColorType, order: &str) -> Vec<u8> {
    let channels = if matches!(colour, ColorType::Luma) { 1 } else { 3 };
    let pixels: Vec<u8> = (0..WIDTH * HEIGHT * channels).map(|i| (i * (seed + 3) / 7) as u8).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    encoder.encode(&pixels, WIDTH as u16, HEIGHT as u16, colour).expect("a small image");
    if order.is_empty() {
        return bytes;
    }
    let comment = [&[0xff, 0xfe, 0, order.len() as u8 + 2], order.as_bytes()].concat();
    bytes.splice(2..2, comment);
    bytes
}

fn photo(seed: usize) -> Vec<u8> {
    file(seed, ColorType::Rgb, "")
}

/// What the CPU makes of it, as interleaved RGB.
fn pixels(file: &[u8]) -> Vec<u8> {
    let mut buffer = PixelBuffer::default();
    let info = Jpeg::new().header(file).expect("a JPEG");
    Jpeg::new().decode(file, &info, 0..info.height, &mut buffer).expect("a good JPEG");
    let gray = info.channels == 1;
    let data = &buffer.data[..info.len_bytes() as usize];
    data.iter().flat_map(|&byte| std::iter::repeat_n(byte, if gray { 3 } else { 1 })).collect()
}

#[test]
fn a_batch_gives_the_pixels_of_the_cpu_once_its_stream_got_there() {
    on_mock("mock::decode::a_batch_gives_the_pixels_of_the_cpu_once_its_stream_got_there", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let (mut engines, mut cores) = (0, 0);
        let (to_engines, to_cores) = (&raw mut engines, &raw mut cores);
        nv!(nv, nvjpegGetHardwareDecoderInfo(handle => Object, to_engines => *mut c_uint, to_cores => *mut c_uint));
        assert_eq!((engines, cores), (7, 1));

        let (state, stream) = (nv.state(handle), gpu.stream());
        let files = [photo(1), file(2, ColorType::Luma, "")];
        let files = [&files[0][..], &files[1][..]];
        let memory = [gpu.memory(BYTES), gpu.memory(BYTES)];
        assert_eq!(nv.initialise(handle, state, 2, RGBI), SUCCESS);
        assert_eq!(nv.batch((handle, state), &files, &memory.map(Image::interleaved), stream), SUCCESS);
        for (&memory, file) in memory.iter().zip(files) {
            assert_eq!(gpu.read(memory, BYTES, stream), pixels(file));
        }
        nv.destroy(handle, &[state]);
        gpu.free(&[stream], &[], &memory);
        gpu.end();
    });
}

/// A slot that is read by one stream and decoded into again, behind a wait for that reader on the stream or on the host.
fn reuse_a_slot(gpu: &Gpu, nv: &Nv, wait_on_the_host: bool) -> (Vec<u8>, Vec<u8>) {
    let handle = nv.handle(HARDWARE);
    let (state, slot) = (nv.state(handle), gpu.memory(BYTES));
    let (decode, resample, event) = (gpu.stream(), gpu.stream(), gpu.event());
    let files = [photo(1), photo(2)];
    let image = [Image::interleaved(slot)];
    assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
    assert_eq!(nv.batch((handle, state), &[&files[0]], &image, decode), SUCCESS);
    gpu.wait(decode);
    let out = gpu.pinned(BYTES, 0);
    ok!(cuMemcpyDtoHAsync_v2(out.at(), slot, BYTES, resample));
    gpu.record(event, resample);
    if wait_on_the_host {
        ok!(cuEventSynchronize(event));
    } else {
        // Enough for any kernel or copy, but the engines do not look at it.
        ok!(cuStreamWaitEvent(decode, event, 0));
    }
    assert_eq!(nv.batch((handle, state), &[&files[1]], &image, decode), SUCCESS);
    gpu.wait(resample);
    let second = gpu.read(slot, BYTES, decode);
    let first = out.get();
    assert_eq!(second, pixels(&files[1]));
    nv.destroy(handle, &[state]);
    out.free();
    gpu.free(&[decode, resample], &[event], &[slot]);
    (first, pixels(&files[0]))
}

#[test]
fn engines_overwrite_their_outputs_at_the_call_whatever_the_stream_waits_for() {
    let test = "mock::decode::engines_overwrite_their_outputs_at_the_call_whatever_the_stream_waits_for";
    on_mock(test, &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let (seen, right) = reuse_a_slot(&gpu, &nv, true);
        assert!(seen == right, "a host wait is enough");
        let (seen, right) = reuse_a_slot(&gpu, &nv, false);
        assert!(seen != right, "a stream wait is not");
        mock.ignore_wait("cuEventSynchronize", 1);
        let (seen, right) = reuse_a_slot(&gpu, &nv, true);
        assert!(seen != right, "nor is a host wait that was removed");
        gpu.end();
    });
}

#[test]
fn bitstreams_must_stay_until_their_decode_has_run() {
    on_mock("mock::decode::bitstreams_must_stay_until_their_decode_has_run", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let (state, stream, memory) = (nv.state(handle), gpu.stream(), gpu.memory(BYTES));
        let mut file = photo(1);
        assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
        assert_eq!(nv.batch((handle, state), &[&file], &[Image::interleaved(memory)], stream), SUCCESS);
        file.fill(0);
        gpu.wait(stream);
        mock.expect_violations(1, "a bitstream was changed");
        nv.destroy(handle, &[state]);
        gpu.free(&[stream], &[], &[memory]);
        gpu.end();
    });
}

#[test]
fn lists_must_stay_until_their_decode_has_run() {
    on_mock("mock::decode::lists_must_stay_until_their_decode_has_run", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let (state, stream, memory) = (nv.state(handle), gpu.stream(), gpu.memory(BYTES));
        let (file, images) = (photo(1), [Image::interleaved(memory)]);
        let (data, mut lens) = ([file.as_ptr()], [file.len()]);
        let (data, images) = (data.as_ptr(), images.as_ptr());
        assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
        let lengths = lens.as_mut_ptr();
        let status = nv!(nv, nvjpegDecodeBatched(handle => Object, state => Object, data => *const *const u8, lengths => *mut usize, images => *const Image, stream => CUstream));
        assert_eq!(status, SUCCESS);
        // SAFETY: the list is there until the end of the test.
        unsafe { lengths.write(0) };
        gpu.wait(stream);
        mock.expect_violations(1, "a list was changed");
        nv.destroy(handle, &[state]);
        gpu.free(&[stream], &[], &[memory]);
        gpu.end();
    });
}

/// As nvJPEG 13.0 on an H100: parameters for a whole image keep the size of the first one.
#[test]
fn parameters_are_for_images_of_one_size_until_they_are_set_anew() {
    on_mock("mock::decode::parameters_are_for_images_of_one_size_until_they_are_set_anew", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let (state, stream) = (nv.state(handle), gpu.stream());
        let mut params: Object = ptr::null_mut();
        assert_eq!(nv!(nv, nvjpegDecodeParamsCreate(handle => Object, &raw mut params => *mut Object)), SUCCESS);
        let mut large = Vec::new();
        let (width, height) = (2 * WIDTH, 2 * HEIGHT);
        let encoder = Encoder::new(&mut large, 90);
        encoder.encode(&vec![90; width * height * 3], width as u16, height as u16, ColorType::Rgb).unwrap();
        let small = photo(1);
        let memory = [gpu.memory(4 * BYTES), gpu.memory(BYTES)];
        let mut to_large = Image::interleaved(memory[0]);
        to_large.pitch[0] = width * 3;
        let decode = |file: &[u8], image: Image| {
            assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
            let (data, lens, images, each) = ([file.as_ptr()], [file.len()], [image], [params]);
            let (data, lens, images, each) = (data.as_ptr(), lens.as_ptr(), images.as_ptr(), each.as_ptr());
            let status = nv!(nv, nvjpegDecodeBatchedEx(handle => Object, state => Object, data => *const *const u8, lens => *const usize, images => *const Image, each => *const Object, stream => CUstream));
            gpu.wait(stream);
            status
        };
        assert_eq!(decode(&large, to_large), SUCCESS);
        assert_eq!(decode(&small, Image::interleaved(memory[1])), BAD_JPEG);
        let set = nv!(nv, nvjpegDecodeParamsSetROI(params => Object, 0 => c_int, 0 => c_int, -1 => c_int, -1 => c_int));
        assert_eq!(set, SUCCESS);
        assert_eq!(decode(&small, Image::interleaved(memory[1])), SUCCESS);
        assert_eq!(nv!(nv, nvjpegDecodeParamsDestroy(params => Object)), SUCCESS);
        nv.destroy(handle, &[state]);
        gpu.free(&[stream], &[], &memory);
        gpu.end();
    });
}

#[test]
fn an_image_that_fails_takes_its_batch_with_it_and_asks_for_a_new_start() {
    let test = "mock::decode::an_image_that_fails_takes_its_batch_with_it_and_asks_for_a_new_start";
    on_mock(test, &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let (state, stream) = (nv.state(handle), gpu.stream());
        let memory = [gpu.memory(BYTES), gpu.memory(BYTES)];
        let images = memory.map(Image::interleaved);
        let good = photo(1);
        let cut = good[..good.len() - 2].to_vec();
        let batch = |file: &[u8]| nv.batch((handle, state), &[&good, file], &images, stream);

        assert_eq!(batch(&good), NOT_INITIALIZED);
        mock.expect_violations(1, "without nvjpegDecodeBatchedInitialize");
        for order in ["mock:batch", "mock:unsupported", "mock:once"] {
            assert_eq!(nv.initialise(handle, state, 2, RGBI), SUCCESS);
            assert_eq!(batch(&file(2, ColorType::Rgb, order)), EXECUTION_FAILED, "{order}");
        }
        assert_eq!(nv.initialise(handle, state, 2, RGBI), SUCCESS);
        assert_eq!(batch(&cut), EXECUTION_FAILED);
        assert_eq!(batch(&good), NOT_INITIALIZED);
        mock.expect_violations(1, "each failure asks for it anew");
        assert_eq!(nv.initialise(handle, state, 2, RGBI), SUCCESS);
        let once = file(2, ColorType::Rgb, "mock:once");
        assert_eq!(batch(&once), SUCCESS, "met before");
        assert_eq!(batch(&good), SUCCESS);
        mock.expect_violations(1, "an earlier decode with the state is queued");
        mock.fail("nvjpegDecodeBatched", 1, EXECUTION_FAILED);
        assert_eq!(batch(&good), EXECUTION_FAILED);
        gpu.wait(stream);
        nv.destroy(handle, &[state]);
        gpu.free(&[stream], &[], &memory);
        gpu.end();
    });
}

#[test]
fn a_gpu_without_engines_says_so() {
    on_mock("mock::decode::a_gpu_without_engines_says_so", &[("INFEED_MOCK_ENGINES", "0")], |mock| {
        let nv = Nv::new(mock);
        let mut handle = ptr::null_mut();
        assert_eq!(nv.create(HARDWARE, &mut handle), ARCH_MISMATCH);
        let handle = nv.handle(HYBRID);
        nv.destroy(handle, &[]);
    });
}

/// Everything that decouples the host's part of a decode from the GPU's.
struct Hybrid<'a> {
    nv: &'a Nv,
    handle: Object,
    decoder: Object,
    state: Object,
    jpeg: Object,
    params: Object,
    pinned: [Object; 2],
    device: [Object; 2],
}

impl<'a> Hybrid<'a> {
    fn new(nv: &'a Nv) -> Self {
        let handle = nv.handle(HYBRID);
        let mut made = [ptr::null_mut(); 8];
        let [decoder, state, jpeg, params, front, back, one, other] = &mut made;
        let none = ptr::null();
        let codes = [
            nv!(nv, nvjpegDecoderCreate(handle => Object, HYBRID => c_int, decoder => *mut Object)),
            nv!(nv, nvjpegDecoderStateCreate(handle => Object, *decoder => Object, state => *mut Object)),
            nv!(nv, nvjpegJpegStreamCreate(handle => Object, jpeg => *mut Object)),
            nv!(nv, nvjpegDecodeParamsCreate(handle => Object, params => *mut Object)),
            nv!(nv, nvjpegBufferPinnedCreate(handle => Object, none => *const c_void, front => *mut Object)),
            nv!(nv, nvjpegBufferPinnedCreate(handle => Object, none => *const c_void, back => *mut Object)),
            nv!(nv, nvjpegBufferDeviceCreate(handle => Object, none => *const c_void, one => *mut Object)),
            nv!(nv, nvjpegBufferDeviceCreate(handle => Object, none => *const c_void, other => *mut Object)),
        ];
        assert_eq!(codes, [SUCCESS; 8]);
        let [decoder, state, jpeg, params, front, back, one, other] = made;
        Self { nv, handle, decoder, state, jpeg, params, pinned: [front, back], device: [one, other] }
    }
    fn parse(&self, file: &[u8]) -> c_int {
        let (data, len) = (file.as_ptr(), file.len());
        nv!(self.nv, nvjpegJpegStreamParse(self.handle => Object, data => *const u8, len => usize, 0 => c_int, 0 => c_int, self.jpeg => Object))
    }
    /// The whole way, with the host's part in the pinned buffer of this page.
    fn decode(&self, file: &[u8], page: usize, to: &mut Image, stream: CUstream) -> c_int {
        self.decode_through(file, (page, page), to, stream)
    }
    /// With buffers of their own pages: pinned, device.
    fn decode_through(&self, file: &[u8], (pinned, device): (usize, usize), to: &mut Image, stream: CUstream) -> c_int {
        let Self { nv, handle, decoder, state, jpeg, params, .. } = *self;
        let steps: [&mut dyn FnMut() -> c_int; 6] = [
            &mut || self.parse(file),
            &mut || nv!(nv, nvjpegStateAttachPinnedBuffer(state => Object, self.pinned[pinned] => Object)),
            &mut || nv!(nv, nvjpegDecodeJpegHost(handle => Object, decoder => Object, state => Object, params => Object, jpeg => Object)),
            &mut || nv!(nv, nvjpegStateAttachDeviceBuffer(state => Object, self.device[device] => Object)),
            &mut || nv!(nv, nvjpegDecodeJpegTransferToDevice(handle => Object, decoder => Object, state => Object, jpeg => Object, stream => CUstream)),
            &mut || nv!(nv, nvjpegDecodeJpegDevice(handle => Object, decoder => Object, state => Object, to => *mut Image, stream => CUstream)),
        ];
        steps.into_iter().map(|step| step()).find(|&code| code != SUCCESS).unwrap_or(SUCCESS)
    }
    fn format(&self, format: c_int) {
        assert_eq!(nv!(self.nv, nvjpegDecodeParamsSetOutputFormat(self.params => Object, format => c_int)), SUCCESS);
    }
    fn end(self) {
        let Self { nv, handle, decoder, state, jpeg, params, pinned, device } = self;
        let codes = [
            nv!(nv, nvjpegJpegStreamDestroy(jpeg => Object)),
            nv!(nv, nvjpegDecodeParamsDestroy(params => Object)),
            nv!(nv, nvjpegBufferPinnedDestroy(pinned[0] => Object)),
            nv!(nv, nvjpegBufferPinnedDestroy(pinned[1] => Object)),
            nv!(nv, nvjpegBufferDeviceDestroy(device[0] => Object)),
            nv!(nv, nvjpegBufferDeviceDestroy(device[1] => Object)),
            nv!(nv, nvjpegJpegStateDestroy(state => Object)),
            nv!(nv, nvjpegDecoderDestroy(decoder => Object)),
            nv!(nv, nvjpegDestroy(handle => Object)),
        ];
        assert_eq!(codes, [SUCCESS; 9]);
    }
}

#[test]
fn decoupled_decoding_is_in_stream_order_and_cuts_regions_out() {
    on_mock("mock::decode::decoupled_decoding_is_in_stream_order_and_cuts_regions_out", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let hybrid = Hybrid::new(&nv);
        let (stream, memory) = (gpu.stream(), gpu.memory(BYTES));
        let out = gpu.pinned(BYTES, 0);
        let (a, b) = (photo(1), photo(2));
        let mut image = Image::interleaved(memory);
        assert_eq!(hybrid.decode(&a, 0, &mut image, stream), SUCCESS);
        // Reads of the first image are queued behind it, before the second: no host wait is needed.
        ok!(cuMemcpyDtoHAsync_v2(out.at(), memory, BYTES, stream));
        assert_eq!(hybrid.decode(&b, 1, &mut image, stream), SUCCESS);
        assert_eq!(out.get(), [0; BYTES], "nothing has run");
        assert_eq!(gpu.read(memory, BYTES, stream), pixels(&b));
        assert_eq!(out.get(), pixels(&a));

        // Planes of a region.
        let (x, y, width, height) = (8, 4, 16, 10);
        let mut planes = image;
        (0..3).for_each(|c| planes.channel[c] = image.channel[0].wrapping_add(c * 1000));
        planes.pitch = [80; 4];
        hybrid.format(RGB);
        nv!(nv, nvjpegDecodeParamsSetROI(hybrid.params => Object, x => c_int, y => c_int, width => c_int, height => c_int));
        gpu.fill(memory, 9, BYTES, stream);
        assert_eq!(hybrid.decode(&a, 0, &mut planes, stream), SUCCESS);
        let mut right = vec![9u8; BYTES];
        for (row, column, c) in (0..10).flat_map(|r| (0..16).flat_map(move |q| (0..3).map(move |c| (r, q, c)))) {
            right[c * 1000 + row * 80 + column] = pixels(&a)[((row + 4) * WIDTH + column + 8) * 3 + c];
        }
        assert!(gpu.read(memory, BYTES, stream) == right, "planes of a region");
        planes.pitch = [15; 4];
        assert_eq!(hybrid.decode(&a, 0, &mut planes, stream), INVALID_PARAMETER);
        gpu.wait(stream);
        hybrid.end();
        out.free();
        gpu.free(&[stream], &[], &[memory]);
        gpu.end();
    });
}

#[test]
fn a_pinned_buffer_is_busy_until_its_transfer_has_run() {
    on_mock("mock::decode::a_pinned_buffer_is_busy_until_its_transfer_has_run", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let hybrid = Hybrid::new(&nv);
        let (stream, memory, other) = (gpu.stream(), gpu.memory(BYTES), gpu.memory(BYTES));
        let (a, b) = (photo(1), photo(2));
        assert_eq!(hybrid.decode(&a, 0, &mut Image::interleaved(memory), stream), SUCCESS);
        assert_eq!(hybrid.decode_through(&b, (0, 1), &mut Image::interleaved(other), stream), SUCCESS);
        mock.expect_violations(1, "an earlier transfer still reads the pinned buffer");
        assert!(gpu.read(memory, BYTES, stream) != pixels(&a), "and the pixels show it");
        hybrid.end();
        gpu.free(&[stream], &[], &[memory, other]);
        gpu.end();
    });
}

#[test]
fn a_device_buffer_is_busy_until_its_decode_has_run() {
    on_mock("mock::decode::a_device_buffer_is_busy_until_its_decode_has_run", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let hybrid = Hybrid::new(&nv);
        let (stream, memory, other) = (gpu.stream(), gpu.memory(BYTES), gpu.memory(BYTES));
        let (a, b) = (photo(1), photo(2));
        assert_eq!(hybrid.decode_through(&a, (0, 0), &mut Image::interleaved(memory), stream), SUCCESS);
        assert_eq!(hybrid.decode_through(&b, (1, 0), &mut Image::interleaved(other), stream), SUCCESS);
        mock.expect_violations(1, "queued work still uses the device buffer");
        gpu.wait(stream);
        assert_eq!(hybrid.decode_through(&b, (0, 0), &mut Image::interleaved(other), stream), SUCCESS);
        gpu.wait(stream);
        hybrid.end();
        gpu.free(&[stream], &[], &[memory, other]);
        gpu.end();
    });
}

#[test]
fn a_handle_has_one_batch_at_a_time() {
    on_mock("mock::decode::a_handle_has_one_batch_at_a_time", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let (handle, other) = (nv.handle(HARDWARE), nv.handle(HARDWARE));
        let states = [nv.state(handle), nv.state(handle), nv.state(other)];
        let (stream, memory) = (gpu.stream(), [0; 3].map(|_: i32| gpu.memory(BYTES)));
        let file = photo(1);
        let decode = |handle, n: usize| {
            assert_eq!(nv.initialise(handle, states[n], 1, RGBI), SUCCESS);
            let image = [Image::interleaved(memory[n])];
            assert_eq!(nv.batch((handle, states[n]), &[&file], &image, stream), SUCCESS);
        };
        decode(handle, 0);
        decode(other, 2);
        decode(handle, 1);
        mock.expect_violations(1, "a batch of the handle is queued");
        gpu.wait(stream);
        decode(handle, 1);
        gpu.wait(stream);
        nv.destroy(handle, &states[..2]);
        nv.destroy(other, &states[2..]);
        gpu.free(&[stream], &[], &memory);
        gpu.end();
    });
}

#[test]
fn engines_may_leave_an_image_out_and_write_late_what_failed() {
    on_mock("mock::decode::engines_may_leave_an_image_out_and_write_late_what_failed", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let (state, stream) = (nv.state(handle), gpu.stream());
        let memory = [gpu.memory(BYTES), gpu.memory(BYTES)];
        let images = memory.map(Image::interleaved);
        let good = photo(1);
        let skipped = file(2, ColorType::Rgb, "mock:skip");
        gpu.fill(memory[1], 7, BYTES, stream);
        gpu.wait(stream);
        assert_eq!(nv.initialise(handle, state, 2, RGBI), SUCCESS);
        assert_eq!(nv.batch((handle, state), &[&good, &skipped], &images, stream), SUCCESS);
        assert_eq!(gpu.read(memory[0], BYTES, stream), pixels(&good));
        assert_eq!(gpu.read(memory[1], BYTES, stream), [7; BYTES], "nobody wrote it, and nobody says so");

        assert_eq!(nv.initialise(handle, state, 2, RGBI), SUCCESS);
        let fails = file(2, ColorType::Rgb, "mock:batch");
        assert_eq!(nv.batch((handle, state), &[&good, &fails], &images, stream), EXECUTION_FAILED);
        assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
        // Into the same memory at once.
        assert_eq!(nv.batch((handle, state), &[&good], &images[..1], stream), SUCCESS);
        assert!(gpu.read(memory[0], BYTES, stream) != pixels(&good), "the batch that failed was not done writing");
        // A frame of another height than it wants.
        for (rows, code) in [(HEIGHT, SUCCESS), (HEIGHT + 8, EXECUTION_FAILED)] {
            let wants = file(1, ColorType::Rgb, &format!("mock:whole {rows}"));
            assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
            assert_eq!(nv.batch((handle, state), &[&wants], &images[..1], stream), code, "{rows}");
            gpu.wait(stream);
        }
        nv.destroy(handle, &[state]);
        gpu.free(&[stream], &[], &memory);
        gpu.end();
    });
}

#[test]
fn headers_are_told_and_damage_is_found() {
    on_mock("mock::decode::headers_are_told_and_damage_is_found", &[], |mock| {
        let (gpu, nv) = (Gpu::new(), Nv::new(mock));
        let hybrid = Hybrid::new(&nv);
        let (stream, memory) = (gpu.stream(), gpu.memory(BYTES));
        let mut image = Image::interleaved(memory);
        let good = photo(1);
        let (mut width, mut height, mut css) = (0, 0, 0);
        assert_eq!(hybrid.parse(&good), SUCCESS);
        let (to_width, to_height, to_css) = (&raw mut width, &raw mut height, &raw mut css);
        nv!(nv, nvjpegJpegStreamGetFrameDimensions(hybrid.jpeg => Object, to_width => *mut c_uint, to_height => *mut c_uint));
        nv!(nv, nvjpegJpegStreamGetChromaSubsampling(hybrid.jpeg => Object, to_css => *mut c_int));
        assert_eq!((width as usize, height as usize, css), (WIDTH, HEIGHT, 2), "4:2:0");

        for damaged in [&good[..good.len() - 2], &good[..30], &good[2..], b"\x89PNG\r\n\x1a\n", &[]] {
            assert_eq!(hybrid.parse(damaged), BAD_JPEG, "{} bytes", damaged.len());
        }
        for (order, code) in [("mock:parse", BAD_JPEG), ("mock:host", EXECUTION_FAILED), ("mock:batch", SUCCESS)] {
            let file = file(1, ColorType::Rgb, order);
            assert_eq!(hybrid.decode(&file, 0, &mut image, stream), code, "{order}");
            gpu.wait(stream);
        }
        hybrid.format(1);
        assert_ne!(hybrid.decode(&good, 0, &mut image, stream), SUCCESS, "YUV is not in the mock");
        gpu.wait(stream);
        hybrid.end();
        gpu.free(&[stream], &[], &[memory]);
        gpu.end();
    });
}

#[test]
fn without_a_decoder_nothing_is_decoded() {
    on_mock("mock::decode::without_a_decoder_nothing_is_decoded", &[], |_| {
        let gpu = Gpu::new();
        let path = std::env::var_os("INFEED_NVJPEG").expect("set for the child");
        // SAFETY: the mock's initialisers do nothing.
        let nv = Nv(unsafe { Library::new(path) }.expect("the mock nvJPEG"));
        let hybrid = Hybrid::new(&nv);
        let memory = gpu.memory(BYTES);
        let code = hybrid.decode(&photo(1), 0, &mut Image::interleaved(memory), ptr::null_mut());
        assert_eq!(code, JPEG_NOT_SUPPORTED);
        hybrid.end();
        gpu.free(&[], &[], &[memory]);
        gpu.end();
    });
}

#[test]
fn objects_belong_to_the_device_that_was_current() {
    let test = "mock::decode::objects_belong_to_the_device_that_was_current";
    on_mock(test, &[("INFEED_MOCK_DEVICES", "2")], |mock| {
        let (one, nv) = (Gpu::new(), Nv::new(mock));
        let handle = nv.handle(HARDWARE);
        let state = nv.state(handle);
        let two = Gpu::on(1);
        assert_eq!(nv.initialise(handle, state, 1, RGBI), SUCCESS);
        mock.expect_violations(2, "of cuda:0 while cuda:1 is current");
        one.make_current();
        nv.destroy(handle, &[state]);
        one.end();
        two.end();
    });
}
