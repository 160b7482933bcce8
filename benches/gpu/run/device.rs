//! The machine, what its memory and link can do, and the kernels against that.

use std::{fs, path::Path, time::Instant};

use infeed::{
    DType, Error, Layout, Result, Transform,
    dataset::{FieldKind, ImageInfo, SampleRng},
    internal::{
        cuda::{Context, Copies, HeldWindow, Kernels, Meter, Mixer, Priority, UploadSize, UploadStream},
        kernels::{Mixer as _, Mixture, RowSpec, RowWork},
        nvjpeg,
        rows::Pool,
    },
};
use serde_json::json;

use super::{Bench, Scale, out::Out};

pub(super) fn machine(_bench: &mut Bench, out: &mut Out) -> Result<()> {
    let devices = infeed::device::devices();
    out.note("devices", json!(devices));
    let link = |id: &str, what: &str| {
        let path = Path::new("/sys/bus/pci/devices").join(id.to_lowercase()).join(what);
        fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    };
    for gpu in &devices.gpus {
        if let Some(id) = &gpu.pci_bus_id {
            let (speed, width) = (link(id, "current_link_speed"), link(id, "current_link_width"));
            out.note("pci link", json!({ "index": gpu.index, "speed": speed, "width": width }));
        }
    }
    let begin = Instant::now();
    let context = Context::open(0)?;
    let opened = begin.elapsed();
    let begin = Instant::now();
    let kernels = Kernels::load(&context)?;
    let loaded = begin.elapsed();
    drop(kernels);
    out.note("starts", json!({ "context_s": opened.as_secs_f64(), "kernels_s": loaded.as_secs_f64() }));
    let (free, total) = context.memory()?;
    out.note("memory", json!({ "free_bytes": free, "total_bytes": total }));
    match nvjpeg::engines(&context) {
        Ok(Ok(engines)) => out.note("engines", json!({ "engines": engines.engines, "cores": engines.cores })),
        Ok(Err(why)) => out.note("engines", json!(why)),
        Err(error) => out.error("engines", &format!("{error:#}")),
    }
    Ok(())
}

/// Bytes for copies within the device: far more than the L2 cache.
fn most(scale: Scale) -> usize {
    scale.of(4 << 30, 2 << 30, 1 << 20)
}

pub(super) fn bounds(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let context = Context::open(0)?;
    let most = most(bench.scale);
    let mut meter = Meter::new(&context, most)?;
    for (what, name, sizes) in [
        (Copies::Up, "host to device", &[1usize << 20, 16 << 20, 256 << 20][..]),
        (Copies::Down, "device to host", &[16 << 20]),
        (Copies::Within, "copy within the device", &[most]),
        (Copies::Fill, "fill of the device", &[most]),
    ] {
        for &asked in sizes {
            let bytes = asked.min(most);
            // About a gigabyte up, or a few times the whole memory.
            let times =
                bench.scale.of((1usize << 30).div_ceil(bytes), (1usize << 29).div_ceil(bytes), 2).clamp(1, 1000);
            let label = format!("{name} {} MiB", asked >> 20);
            let traffic = if what == Copies::Within { 2 } else { 1 } * bytes * times;
            out.figure(&label, "GB/s", json!({ "bytes": bytes, "times": times }), || {
                Ok(traffic as f64 / meter.time(what, bytes, times)?.as_secs_f64() / 1e9)
            });
        }
    }
    Ok(())
}

/// One kernel workload.
struct Work {
    name: &'static str,
    info: ImageInfo,
    transform: Transform,
    dtype: DType,
    count: usize,
}

pub(super) fn kernels(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let context = Context::open(0)?;
    let (copy, fill) = bandwidths(&context, bench.scale, out)?;
    let kernels = Kernels::load(&context)?;
    let photo = ImageInfo::interleaved_u8(375, 500, 3);
    let planar =
        |height, width, channels| ImageInfo { planar: true, ..ImageInfo::interleaved_u8(height, width, channels) };
    let preset = |name| Transform::preset(name);
    let scale = bench.scale;
    let work = [
        // The launch that the multi-channel workload makes.
        Work {
            name: "50x50x5 to 220x220 f32",
            info: planar(50, 50, 5),
            transform: preset("cells")?,
            dtype: DType::F32,
            count: scale.of(2048, 1024, 4),
        },
        Work {
            name: "500x375x3 crops to 224x224 f16",
            info: photo,
            transform: preset("imagenet-train")?,
            dtype: DType::F16,
            count: scale.of(1024, 1024, 4),
        },
        Work {
            name: "500x375x3 crops to 224x224 f32",
            info: photo,
            transform: preset("imagenet-train")?,
            dtype: DType::F32,
            count: scale.of(1024, 1024, 4),
        },
        Work {
            name: "500x375x3 crops to 176x176 f32, TrivialAugmentWide, erasing",
            info: photo,
            transform: preset("torchvision-v2-train")?,
            dtype: DType::F32,
            count: scale.of(1024, 1024, 4),
        },
        Work {
            name: "500x375x3 crops to 224x224 f16, RandAugment(2, 9)",
            info: photo,
            transform: "random_resized_crop:224;horizontal_flip;rand_augment:2,9;normalize".parse()?,
            dtype: DType::F16,
            count: scale.of(1024, 1024, 4),
        },
        Work {
            name: "CIFAR 32x32x3 to f32",
            info: planar(32, 32, 3),
            transform: preset("cifar-train")?,
            dtype: DType::F32,
            count: scale.of(60_000, 60_000, 40),
        },
        Work {
            name: "CIFAR 32x32x3 to f16",
            info: planar(32, 32, 3),
            transform: preset("cifar-train")?,
            dtype: DType::F16,
            count: scale.of(60_000, 60_000, 40),
        },
    ];
    for work in work {
        if let Err(error) = kernel(&kernels, &work, (copy, fill), out) {
            out.error(work.name, &format!("{error:#}"));
        }
    }
    mixing(&kernels, scale, out)
}

/// MixUp of a whole batch, each row with the one before it: rows read and written once.
fn mixing(kernels: &std::sync::Arc<Kernels>, scale: Scale, out: &mut Out) -> Result<()> {
    let count = scale.of(256, 256, 4);
    let row = RowSpec { height: 224, width: 224, channels: 3, dtype: DType::F32, layout: Layout::Nchw };
    let traffic = 2 * count * row.len_bytes();
    let mixer = Mixer::new(kernels, count)?;
    let pool = Pool::on_device(kernels.context(), count, row.len_bytes(), 1)?;
    let Some(mut rows) = pool.try_take(count, row.len_bytes())? else { return Ok(()) };
    for (name, mixture) in
        [("MixUp", Mixture::Blend { own: 0.6, other: 0.4 }), ("CutMix of a half", Mixture::Paste([0, 224, 56, 168]))]
    {
        let name = format!("{name}, a batch of 224x224x3 f32");
        out.figure(&name, "ms", json!({ "rows": count, "bytes": traffic }), || {
            let begin = Instant::now();
            mixer.roll(&mut rows, &row, &mixture, count)?;
            Ok(begin.elapsed().as_secs_f64() * 1e3)
        });
    }
    Ok(())
}

/// What copies and fills of this process reach, in bytes read and written a second.
fn bandwidths(context: &Context, scale: Scale, out: &mut Out) -> Result<(f64, f64)> {
    let most = most(scale);
    let mut meter = Meter::new(context, most)?;
    let mut rate = |what, name: &str, traffic: usize| {
        let rate = out.figure(name, "GB/s", json!({ "bytes": most }), || {
            Ok(traffic as f64 / meter.time(what, most, 4)?.as_secs_f64() / 1e9 * 4.0)
        });
        rate.unwrap_or(f64::NAN) * 1e9
    };
    Ok((rate(Copies::Within, "copy", 2 * most), rate(Copies::Fill, "fill", most)))
}

/// The kernels alone, on pixels that are on the device: their time is that between two events of one launch.
fn kernel(kernels: &std::sync::Arc<Kernels>, work: &Work, (copy, fill): (f64, f64), out: &mut Out) -> Result<()> {
    let Work { name, info, transform, dtype, count } = work;
    let field = FieldKind::Image { channels: info.channels, size: Some((info.height, info.width)), dtype: None };
    let lowered = transform.lower(&field, *dtype, Layout::Nchw)?;
    let row = *lowered.row();
    let mut orders = Vec::with_capacity(*count);
    for n in 0..*count {
        let (drawn, mut work) = (lowered.draw(info, SampleRng::new(1, 0, n as u64))?, RowWork::default());
        if !lowered.row_work(&drawn, info.dtype, 0, &mut work)? {
            return Err(Error::config("steps that need the CPU"));
        }
        let [rows, cols] = work.reads();
        orders.push((work, HeldWindow { info: *info, rows, cols }));
    }
    let rooms = || orders.iter().map(|(work, _)| work.room());
    let read: usize = orders.iter().map(|(_, held)| held.len_bytes()).sum();
    let written = row.len_bytes() * count;
    // One page for all: one launch of each kernel.
    let page_bytes = read + count * 16 + rooms().map(|room| room.page).sum::<usize>() + 4096;
    let size = UploadSize { page_bytes, pages: 1, scratch_bytes: rooms().map(|room| room.scratch).sum() };
    let tables: Vec<_> = lowered.tables().collect();
    let mut upload = UploadStream::new(kernels, size, Priority::High, &tables)?;
    let pool = Pool::on_device(kernels.context(), 1, written, 1)?;
    let Some(rows) = pool.try_take(*count, row.len_bytes())? else { return Ok(()) };
    let mut filled = false;
    let mut launch = || {
        for (at, (work, held)) in orders.iter().enumerate() {
            upload.row(held, work, &rows, at, |page| {
                // The page keeps its bytes from run to run.
                if !filled {
                    let noise = |i: usize| (i.wrapping_mul(2_654_435_761).wrapping_add(at) >> 7) as u8;
                    page.iter_mut().enumerate().for_each(|(i, byte)| *byte = noise(i));
                }
            })?;
        }
        filled = true;
        let ticket = upload.launch()?;
        upload.wait(ticket)?;
        Ok(upload.take_times())
    };
    let (mut times, mut uploads) = (Vec::new(), Vec::new());
    for run in 0..=2 * out.runs() {
        let done = launch()?;
        if run > 0 {
            times.push(done.transform.as_secs_f64());
            uploads.push((read + count * 128) as f64 / done.transfer.as_secs_f64().max(1e-9) / 1e9);
        }
    }
    let rate = |bytes: usize| times.iter().map(|t| bytes as f64 / t.max(1e-9) / 1e9).collect::<Vec<_>>();
    let more = json!({ "images": count, "bytes_read": read, "bytes_written": written });
    let median = out.values(name, "GB/s written", more, rate(written)).unwrap_or(f64::NAN) * 1e9;
    let images = times.iter().map(|t| *count as f64 / t.max(1e-9)).collect();
    out.values(&format!("{name}, images"), "images/s", json!({}), images);
    out.values(&format!("{name}, upload of its pixels"), "GB/s", json!({}), uploads);
    let traffic = median * (read + written) as f64 / written as f64;
    let shares =
        json!({ "of_fill_by_bytes_written": median / fill, "of_copy_by_bytes_read_and_written": traffic / copy });
    out.note(&format!("{name}, shares"), shares);
    Ok(())
}
