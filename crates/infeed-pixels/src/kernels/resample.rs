//! Makes one row of a batch from pixels.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, Layout},
};

use super::{
    bytes::{Across, Between, Bytes, down},
    cache_prefetch::CachePrefetch,
    convert::{self, F32, Load, Store, is_loaded, is_stored, with_load, with_store},
    lanes::{self, Move, Plane, Value, lanes_of},
    level::Level,
    params::{Axis, ChannelTable, Pixels, ResampleParams, RowSpec, channel_source},
    row::{check_row, cut_out, fill_row},
    stream::Stream,
    stretch::{ROWS, SPARE, Stretch},
    taps::Taps,
    target::{Target, goes_past},
};

/// Resamples images into rows, on the thread that owns it. Keeps its scratch memory from image to image.
///
/// Scratch: one f32 source row and one f32 output row with all channels, and the taps of both axes. For planes that are
/// enlarged, also the source as f32, which is smaller than the output. For filters that overshoot on bytes, up to
/// sixteen source rows as f32, and bytes for twice the rows that an output row reads, at the output's width.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     codec::ImageInfo,
///     dataset::FieldKind,
///     spi::{Pixels, Resampler, SampleRng},
///     transform::Transform,
/// };
///
/// let info = ImageInfo::interleaved_u8(2, 2, 1);
/// let pixels = Pixels { info, rows: 0..2, data: &[10, 20, 30, 40] };
/// let images = FieldKind::Image { channels: 1, size: None, dtype: None };
/// let lowered = Transform::new().resize_exact(1, 1).lower(&images, DType::U8, Layout::Nchw)?;
/// let params = lowered.params(&info, SampleRng::new(0, 0, 0))?;
///
/// let mut resampler = Resampler::new(); // One for each thread, for all its images.
/// let mut row = [0];
/// resampler.run(&pixels, &params, lowered.table(DType::U8), lowered.row(), &mut row)?;
/// assert_eq!(row, [25]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Resampler {
    pub(super) level: Level,
    pub(super) x: Taps,
    pub(super) y: Taps,
    /// One output row before the horizontal pass: pixels of all source channels.
    pub(super) row: Vec<f32>,
    /// One plane's part of `row`, if the source is planar.
    plane: Vec<f32>,
    /// One output row after the horizontal pass: `lanes_of` the source channels for each output.
    pub(super) line: Vec<f32>,
    /// Positions of the values that a row copies.
    index: Vec<u32>,
    /// A source row of which not all pixels are held.
    spare: Vec<u64>,
    /// An aligned copy of a misaligned source, and of a misaligned row.
    aligned: [Vec<u64>; 2],
    /// Source channel of each output channel.
    pub(super) channels: Vec<usize>,
    /// For filters that overshoot on bytes.
    pub(super) between: Between,
    /// For images that are enlarged: all their rows, channel after channel.
    stretch: Stretch,
    lines: Vec<f32>,
    /// Lines that will be written past the caches.
    pub(super) stage: Vec<u64>,
    /// Values that are still to be packed.
    pub(super) made: Vec<f32>,
    /// Whether the caller reads each row soon after it is made.
    pub(super) read_soon: bool,
    /// The bytes that are read after the current image.
    soon: CachePrefetch,
    /// For planes of brightness and colour.
    pub(super) planes: PlaneScratch,
}

/// Scratch memory for planes.
#[derive(Debug, Default)]
pub(super) struct PlaneScratch {
    /// Vertical taps of each plane.
    pub(super) y: [Taps; 3],
    /// For two lines, a row of each plane after the vertical pass.
    pub(super) rows: [[Vec<f32>; 3]; 2],
    /// Colour at the first plane's width.
    pub(super) wide: [[Vec<f32>; 2]; 2],
}

impl PlaneScratch {
    pub(super) fn held_bytes(&self) -> usize {
        let taps = self.y.iter().map(|y| y.weights.capacity() + y.first.capacity() + y.count.capacity());
        let rows = self.rows.iter().flatten().chain(self.wide.iter().flatten()).map(Vec::capacity);
        4 * taps.chain(rows).sum::<usize>()
    }
}

impl Resampler {
    /// Uses the best instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses at most the instructions of `level`.
    #[must_use]
    pub fn with_level(level: Level) -> Self {
        Self { level, ..Self::default() }
    }

    /// Whether the caller reads the next rows soon after they are made. Large rows that are not read soon are written
    /// past the caches, which then keep data that is still to be read.
    pub const fn set_read_soon(&mut self, soon: bool) {
        self.read_soon = soon;
    }

    /// Announces the pixels that the call after the next [`run`](Self::run) will read. If they are few, they are
    /// prefetched during that run.
    pub fn reads_next(&mut self, pixels: &[u8]) {
        self.soon = CachePrefetch::of(pixels);
    }

    /// Bytes of scratch memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let floats = [&self.row, &self.plane, &self.line, &self.x.weights, &self.y.weights];
        let words = [&self.index, &self.x.first, &self.x.count, &self.y.first, &self.y.count];
        let floats: usize = floats.iter().map(|v| v.capacity()).sum();
        let words: usize = words.iter().map(|v| v.capacity()).sum();
        4 * (floats + words)
            + 8 * (self.spare.capacity() + self.aligned[0].capacity() + self.aligned[1].capacity())
            + size_of::<usize>() * self.channels.capacity()
            + 4 * (self.lines.capacity() + self.made.capacity())
            + 8 * self.stage.capacity()
            + self.stretch.held_bytes()
            + self.between.held_bytes()
            + self.planes.held_bytes()
    }

    /// Writes every byte of the row that `params` describes into `out`.
    ///
    /// Allocates nothing once the scratch memory has grown to the largest image.
    ///
    /// # Errors
    /// `Internal` if the arguments contradict each other: a window outside of the image or of the rows held, slices of
    /// another length, or channels that do not match. `out` is then unchanged.
    pub fn run(
        &mut self,
        src: &Pixels<'_>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [u8],
    ) -> Result<()> {
        check(src, params, table, row, out)?;
        self.channels.clear();
        let source = u32::from(src.info.channels);
        self.channels
            .extend((0..row.channels).filter_map(|c| channel_source(source, row.channels, c)).map(|c| c as usize));
        with_load!(src.info.dtype, L => with_store!(row.dtype, S => self.run_as::<L, S>(src, params, table, row, out), _ => {}), _ => {});
        Ok(())
    }

    fn run_as<L: Load, S: Store>(
        &mut self,
        src: &Pixels<'_>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [u8],
    ) {
        let [mut aligned, mut aligned_out] = std::mem::take(&mut self.aligned);
        // Rows and decoded pixels are aligned; a slice of a file may not be.
        let values = bytemuck::try_cast_slice(src.data).unwrap_or_else(|_| {
            aligned.resize(src.data.len().div_ceil(8), 0);
            let copy = &mut bytemuck::cast_slice_mut(&mut aligned)[..src.data.len()];
            copy.copy_from_slice(src.data);
            bytemuck::cast_slice(copy)
        });
        let image = Image::<L>::new(src, values);
        match bytemuck::try_cast_slice_mut(out) {
            Ok(out) => self.image_to_row::<L, S>(&image, params, table, row, out),
            Err(_) => {
                aligned_out.resize(out.len().div_ceil(8), 0);
                let copy = &mut bytemuck::cast_slice_mut(&mut aligned_out)[..out.len()];
                self.image_to_row::<L, S>(&image, params, table, row, bytemuck::cast_slice_mut(copy));
                out.copy_from_slice(copy);
            }
        }
        self.aligned = [aligned, aligned_out];
    }

    fn image_to_row<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let moved = !params.filter.is_nearest() && params.x.is_shift() && params.y.is_shift();
        let planes = image.pixel == 1 && row.layout == Layout::Nchw;
        if !(moved && planes) {
            self.soon.ask(1);
        }
        if moved {
            if planes {
                self.shift::<L, S>(image, params, table, row, out);
            } else if self.moves_pixels(image, params, table, row) {
                self.shift_pixels::<L, S>(image, params, table, row, out);
            } else {
                self.pick::<L, S>(image, params, table, row, out);
            }
        } else if params.filter.is_nearest() {
            self.pick::<L, S>(image, params, table, row, out);
        } else if size_of::<L::Raw>() == 1 && params.filter.keeps_bytes() {
            self.overshooting::<L, S>(image, params, table, row, out);
        } else {
            self.filter::<L, S>(image, params, table, row, out);
        }
        cut_out::<S>(&params.cutout, table, row, out);
    }

    /// Whether interleaved pixels can be moved whole: the same channels in and out, in order, all with the same
    /// arithmetic.
    fn moves_pixels<L: Load>(
        &self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
    ) -> bool {
        let same = |values: &[f32]| values.iter().all(|value| value.to_bits() == values[0].to_bits());
        row.layout == Layout::Nhwc
            && image.pixel == row.channels as usize
            && params.x.flip == 0
            // Windows of the wider rows must still be whole numbers in f32.
            && (params.x.start.abs() + row.width as f32) * (row.channels as f32) < 8_388_608.0
            && same(&table.scale)
            && same(&table.bias)
            && same(&table.fill)
    }

    /// Interleaved pixels that are moved whole are treated as one plane of wider rows.
    fn shift_pixels<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let wider = |axis: &Axis, by: u32| Axis {
            start: axis.start * by as f32,
            low: axis.low.saturating_mul(by),
            high: axis.high.saturating_mul(by),
            from: axis.from * by,
            to: axis.to * by,
            ..*axis
        };
        let params = ResampleParams { x: wider(&params.x, row.channels), ..*params };
        let image = Image { width: image.width * image.pixel, channels: 1, pixel: 1, ..*image };
        let row = RowSpec { width: row.width * row.channels, channels: 1, layout: Layout::Nchw, ..*row };
        self.shift::<L, S>(&image, &params, table, &row, out);
    }

    /// Without scaling, from planes to planes: rows are moved as they are. Not past the caches, which took twice as
    /// long (3 x 224 x 224 to f32, 49 µs instead of 24 on a Zen 4): plain stores of whole vectors are fast enough.
    fn shift<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let (width, height) = (row.width as usize, row.height as usize);
        let (y, x) = (&params.y, &params.x);
        let end = |axis: &Axis, len: u32| (axis.from.min(len) as usize, axis.to.min(len) as usize);
        let ((top, bottom), (left, right)) = (end(y, row.height), end(x, row.width));
        let by = Move {
            start: [y.start as isize, x.start as isize],
            from: [top, left],
            to: [bottom.max(top), right.max(left)],
            flip: [y.flip != 0, x.flip != 0],
            width,
        };
        if size_of::<L::Raw>() == 1
            && row.dtype == DType::U8
            && table.scale.iter().all(|s| *s == 1.0)
            && table.bias.iter().all(|b| *b == 0.0)
        {
            self.soon.ask(1);
            return self.copy(
                image,
                &by,
                height,
                table,
                bytemuck::cast_slice(image.values),
                bytemuck::cast_slice_mut(out),
            );
        }
        self.spare.resize(width, 0);
        let spare = &mut bytemuck::cast_slice_mut(&mut self.spare)[..width];
        let planes = row.channels as usize;
        for (c, plane) in out.chunks_exact_mut(width * height).enumerate() {
            self.soon.ask(planes - c);
            let value = Value { scale: table.scale[c], bias: table.bias[c], fill: table.fill[c] };
            let origin = (self.channels[c] * image.plane) as isize - (image.first_row * image.width) as isize;
            let source = Plane { values: image.values, origin, width: image.width };
            lanes::shift::<L, S>(self.level, &source, &by, &value, spare, plane);
        }
    }

    /// [`shift`](Self::shift) for bytes that are stored unchanged.
    fn copy<L: Load>(
        &self,
        image: &Image<'_, L>,
        by: &Move,
        height: usize,
        table: &ChannelTable,
        values: &[u8],
        out: &mut [u8],
    ) {
        let Move { start, from, to, flip, width } = by;
        for (c, plane) in out.chunks_exact_mut(width * height).enumerate() {
            let fill = convert::U8::of(table.fill[c]);
            for (stored, row) in plane.chunks_exact_mut(*width).enumerate() {
                let o = if flip[0] { height - 1 - stored } else { stored };
                if o < from[0] || o >= to[0] || from[1] >= to[1] {
                    row.fill(fill);
                    continue;
                }
                let y = (o as isize + start[0]) as usize;
                let at = image.at(self.channels[c], y) + (from[1] as isize + start[1]) as usize;
                let pixels = &values[at..at + (to[1] - from[1])];
                let (left, right) = if flip[1] { (width - to[1], width - from[1]) } else { (from[1], to[1]) };
                row[..left].fill(fill);
                row[right..].fill(fill);
                let row = &mut row[left..right];
                row.copy_from_slice(pixels);
                if flip[1] {
                    row.reverse();
                }
            }
        }
    }

    /// One source pixel for each output.
    fn pick<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        lanes::build(self.level, &mut self.x, &params.x, row.width, params.filter);
        lanes::build(self.level, &mut self.y, &params.y, row.height, params.filter);
        let (width, height, channels) = (row.width as usize, row.height as usize, row.channels as usize);
        let (from, to) = (self.x.from, self.x.to);
        self.index.clear();
        self.index.extend(self.x.first.iter().map(|&x| x * image.pixel as u32));
        for stored in 0..height {
            let over = (self.y.from..self.y.to).contains(&stored).then(|| self.y.first[stored - self.y.from] as usize);
            let Some(y) = over else {
                fill_row::<S>(stored, 0..width, table, row, out);
                continue;
            };
            fill_row::<S>(stored, 0..from, table, row, out);
            fill_row::<S>(stored, to..width, table, row, out);
            for c in 0..channels {
                let values = &image.values[image.at(self.channels[c], y)..];
                let (every, out) = match row.layout {
                    Layout::Nchw => (1, &mut out[(c * height + stored) * width..][from..to]),
                    Layout::Nhwc => (channels, &mut out[stored * width * channels..][from * channels..to * channels]),
                };
                let out = out.get_mut(if every == 1 { 0 } else { c }..).unwrap_or_default();
                lanes::pick::<L, S>(self.level, values, &self.index, table.scale[c], table.bias[c], every, out);
            }
        }
    }

    /// Filters that overshoot, for bytes: horizontal first.
    fn overshooting<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let left = params.x.reads(row.width, params.filter).start as usize * image.pixel;
        let src = Bytes {
            data: bytemuck::cast_slice(image.values),
            channels: image.channels,
            pixel: image.pixel,
            at: |channel, y| image.at(channel, y) + left,
        };
        self.filter_bytes::<S, _>(&src, params, table, row, out);
    }

    /// Applies the filter of `params`, which overshoots, to bytes; everything but the cutout.
    pub(super) fn filter_bytes<S: Store, A: Fn(usize, usize) -> usize>(
        &mut self,
        src: &Bytes<'_, A>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let past = goes_past(params, row, self.read_soon);
        let Self { level, x, y, line, channels, stage, made, between, .. } = self;
        let level = *level;
        lanes::build(level, x, &params.x, row.width, params.filter);
        lanes::build(level, y, &params.y, row.height, params.filter);
        let columns = params.x.reads(row.width, params.filter);
        for first in &mut x.first {
            *first -= columns.start;
        }
        let reads = params.y.reads(row.height, params.filter);
        let reads = reads.start as usize..reads.end as usize;
        let (n, wide, planar) = (x.outputs(), lanes_of(src.channels), row.layout == Layout::Nchw);
        let across = Across { src, x, columns: columns.len(), wide, planar, reads, level };
        let pitch = across.pitch();
        across.prepare(between, y.most);
        // Writes planes directly if no channel is needed twice.
        let direct = planar && !S::PACKED && channels.len() <= src.channels;
        line.resize(if direct { 0 } else { pitch }, 0.0);
        let mut target = Target::<S>::new(level, row, past, 1, stage, out);
        target.fill(0..y.from, table, row);
        let over = x.from..x.to;
        for tap in 0..y.outputs() {
            let weights = &y.weights[tap * y.stride..][..y.count[tap] as usize];
            let first = y.first[tap] as usize;
            let start = across.need(between, first..first + weights.len(), params.y.flip != 0);
            let rows = &between.rows[..];
            if !direct {
                down::<F32>(level, rows, start, pitch, weights, [1.0, 0.0], line);
            }
            target.lines(y.from + tap, 1, row, |stored, row, out| {
                if !planar {
                    return put_line::<S>(level, line, wide, channels, &over, table, made, stored, row, out);
                }
                let (width, height) = (row.width as usize, row.height as usize);
                fill_row::<S>(stored, 0..over.start, table, row, out);
                fill_row::<S>(stored, over.end..width, table, row, out);
                for (c, &source) in channels.iter().enumerate() {
                    let out = &mut out[(c * height + stored) * width..][over.clone()];
                    let (scale, bias) = (table.scale[c], table.bias[c]);
                    if direct {
                        down::<S>(level, rows, start + source * n, pitch, weights, [scale, bias], out);
                    } else {
                        lanes::finish_packed::<S>(level, &line[source * n..], 1, 0, scale, bias, made, out);
                    }
                }
            });
        }
        target.fill(y.from + y.outputs()..row.height as usize, table, row);
        target.end();
    }

    /// All other filters: the vertical pass over the needed columns, then the horizontal pass, one output row at a
    /// time.
    fn filter<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        if row.layout == Layout::Nchw && self.stretch.prepare(self.level, params, row) {
            return self.enlarge::<L, S>(image, params, table, row, out);
        }
        let past = goes_past(params, row, self.read_soon);
        let Self { level, x, y, row: pixels, plane, line, channels, stage, made, .. } = self;
        let level = *level;
        lanes::build(level, x, &params.x, row.width, params.filter);
        lanes::build(level, y, &params.y, row.height, params.filter);
        let columns = params.x.reads(row.width, params.filter);
        let (left, columns) = (columns.start as usize, columns.len());
        for first in &mut x.first {
            *first -= left as u32;
        }
        let (n, source) = (x.outputs(), image.channels);
        // Zeros after the last pixel: taps of weight 0 and lanes that are not stored end there.
        let used = columns * source;
        pixels.clear();
        pixels.resize(used + (x.stride + 1) * source + 4, 0.0);
        let wide = lanes_of(source);
        line.resize(n * wide, 0.0);
        let mut target = Target::<S>::new(level, row, past, 1, stage, out);
        target.fill(0..y.from, table, row);
        for tap in 0..y.outputs() {
            let weights = &y.weights[tap * y.stride..][..y.count[tap] as usize];
            let first = y.first[tap] as usize;
            let pitch = image.width * image.pixel;
            if image.pixel == source {
                let start = image.at(0, first) + left * source;
                lanes::vertical::<L>(level, image.values, start, pitch, weights, &mut pixels[..used]);
            } else {
                plane.resize(columns, 0.0);
                for c in 0..source {
                    let start = image.at(c, first) + left;
                    lanes::vertical::<L>(level, image.values, start, pitch, weights, plane);
                    for (pixel, &value) in pixels.chunks_exact_mut(source).zip(&*plane) {
                        pixel[c] = value;
                    }
                }
            }
            lanes::horizontal(level, pixels, source, x, !L::FINITE, line);
            if let Some(most) = L::MOST.filter(|_| params.filter.overshoots()) {
                lanes::cut(level, line, most);
            }

            let over = x.from..x.to;
            target.lines(y.from + tap, 1, row, |stored, row, out| {
                put_line::<S>(level, line, wide, channels, &over, table, made, stored, row, out);
            });
        }
        target.fill(y.from + y.outputs()..row.height as usize, table, row);
        target.end();
    }
}

impl Resampler {
    /// [`filter`](Self::filter) into planes that are larger than the source. The source is converted and split into
    /// planes once, because each of its rows is used for several output rows.
    fn enlarge<L: Load, S: Store>(
        &mut self,
        image: &Image<'_, L>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let (width, height) = (row.width as usize, row.height as usize);
        let (rows, columns) = (params.y.reads(row.height, params.filter), params.x.reads(row.width, params.filter));
        let (top, left, columns) = (rows.start as usize, columns.start as usize, columns.len());
        // Whole blocks of the vertical pass, plane by plane: a plane then stays in the first-level cache.
        let pitch = columns.next_multiple_of(lanes::BLOCK);
        let plane = rows.len() * pitch;
        self.lines.resize(image.channels * plane, 0.0);
        for (n, y) in rows.enumerate() {
            if image.pixel == 1 {
                for c in 0..image.channels {
                    let values = &image.values[image.at(c, y as usize) + left..][..columns];
                    lanes::split::<L>(self.level, values, 1, plane, &mut self.lines[c * plane + n * pitch..]);
                }
            } else {
                let values = &image.values[image.at(0, y as usize) + left * image.pixel..][..columns * image.pixel];
                lanes::split::<L>(self.level, values, image.pixel, plane, &mut self.lines[n * pitch..]);
            }
        }
        let past = goes_past(params, row, self.read_soon);
        let Self { level, stretch, lines, row: between, stage, made, channels, .. } = self;
        let Stretch { x, y, .. } = &*stretch;
        let image_lines = y.from..y.from + y.outputs();
        // Lines before the horizontal pass, with the extra values that their last runs may load.
        between.clear();
        between.resize(ROWS * pitch + SPARE, 0.0);
        let over = x.from..x.to;
        // Values of types that must be packed.
        made.resize(if S::AS_IS { 0 } else { ROWS * width }, 0.0);
        // A row too large for the caches is made a few lines at a time, which go from the first-level cache past the
        // others.
        stage.resize(if past { (ROWS * width * size_of::<S::Raw>()).div_ceil(8) } else { 0 }, 0);
        let stage: &mut [S::Raw] = bytemuck::cast_slice_mut(stage);
        let (mut past, out) = match past {
            true => (Some(Stream::new(*level, bytemuck::cast_slice_mut(out))), &mut [][..]),
            false => (None, out),
        };
        for (c, &from) in channels.iter().enumerate() {
            let (scale, bias, fill) = (table.scale[c], table.bias[c], table.fill[c]);
            let mut stored = 0;
            while stored < height {
                let inside = image_lines.contains(&stored);
                let end = if inside { image_lines.end } else { height };
                let end = if stored < image_lines.start { image_lines.start } else { end };
                let rows = (end - stored).min(ROWS);
                let stored_lines = match past {
                    Some(_) => &mut stage[..rows * width],
                    None => &mut out[(c * height + stored) * width..][..rows * width],
                };
                if inside {
                    for (row, line) in between.chunks_exact_mut(pitch).take(rows).enumerate() {
                        let tap = stored + row - image_lines.start;
                        let weights = &y.weights[tap * y.stride..][..y.count[tap] as usize];
                        let start = from * plane + (y.first[tap] as usize - top) * pitch;
                        lanes::vertical::<convert::F32>(*level, lines, start, pitch, weights, line);
                    }
                    match bytemuck::try_cast_slice_mut(stored_lines) {
                        Ok(made) if S::AS_IS => {
                            fill_sides(made, width, &over, fill);
                            stretch.rows(between, pitch, L::MOST, scale, bias, made, width);
                        }
                        _ => {
                            let made = &mut made[..rows * width];
                            fill_sides(made, width, &over, fill);
                            stretch.rows(between, pitch, L::MOST, scale, bias, made, width);
                            S::pack(*level, made, stored_lines);
                        }
                    }
                } else {
                    stored_lines.fill(S::of(fill));
                }
                if let Some(past) = &mut past {
                    past.put(bytemuck::cast_slice(stored_lines));
                }
                stored += rows;
            }
        }
        if let Some(past) = past {
            past.end();
        }
    }
}

/// Stores a line of sums, and the fill values beside the image.
#[expect(clippy::too_many_arguments, reason = "the loop's state, read once a line")]
#[inline(always)]
pub(super) fn put_line<S: Store>(
    level: Level,
    line: &[f32],
    wide: usize,
    channels: &[usize],
    over: &std::ops::Range<usize>,
    table: &ChannelTable,
    made: &mut Vec<f32>,
    stored: usize,
    row: &RowSpec,
    out: &mut [S::Raw],
) {
    let (width, height) = (row.width as usize, row.height as usize);
    fill_row::<S>(stored, 0..over.start, table, row, out);
    fill_row::<S>(stored, over.end..width, table, row, out);
    match row.layout {
        Layout::Nchw => {
            for (c, &source) in channels.iter().enumerate() {
                let out = &mut out[(c * height + stored) * width..][over.clone()];
                lanes::finish_packed::<S>(level, line, wide, source, table.scale[c], table.bias[c], made, out);
            }
        }
        Layout::Nhwc => {
            let n = channels.len();
            let out = &mut out[stored * width * n..][over.start * n..over.end * n];
            lanes::interleave_packed::<S>(level, line, wide, channels, &table.scale, &table.bias, made, out);
        }
    }
}

/// The fill values beside the image.
fn fill_sides(lines: &mut [f32], width: usize, over: &std::ops::Range<usize>, fill: f32) {
    if over.len() < width {
        for line in lines.chunks_exact_mut(width) {
            line[..over.start].fill(fill);
            line[over.end..].fill(fill);
        }
    }
}

/// Decoded pixels as typed values.
#[derive(Debug)]
struct Image<'a, L: Load> {
    values: &'a [L::Raw],
    width: usize,
    channels: usize,
    /// The row at the start of `values`.
    first_row: usize,
    /// Values from one pixel to the next.
    pixel: usize,
    /// Values from one channel to the next.
    plane: usize,
}

impl<'a, L: Load> Image<'a, L> {
    fn new(src: &Pixels<'_>, values: &'a [L::Raw]) -> Self {
        let (width, channels) = (src.info.width as usize, src.info.channels as usize);
        let (pixel, plane) = if src.info.planar { (1, width * src.rows.len()) } else { (channels, 1) };
        Self { values, width, channels, first_row: src.rows.start as usize, pixel, plane }
    }

    /// Index of the first value of a source row.
    fn at(&self, channel: usize, y: usize) -> usize {
        channel * self.plane + (y - self.first_row) * self.width * self.pixel
    }
}

/// Checks the facts that the loops rely on. Everything else is bounds-checked.
fn check(src: &Pixels<'_>, params: &ResampleParams, table: &ChannelTable, row: &RowSpec, out: &[u8]) -> Result<()> {
    let wrong = |what: String| Err(Error::new(ErrorKind::Internal, what).with_hint("please report it"));
    let info = &src.info;
    if !is_loaded(info.dtype) || !is_stored(row.dtype) {
        return wrong(format!("no resample kernel from {} to {}", info.dtype, row.dtype));
    }
    if row.channels == 0 || channel_source(u32::from(info.channels), row.channels, 0).is_none() {
        return wrong(format!("{} channels do not make {}", info.channels, row.channels));
    }
    check_row([info.height, info.width], params, table, row, out)?;
    if src.rows.start > src.rows.end || src.rows.end > info.height {
        return wrong(format!("rows {:?} of an image {} high", src.rows, info.height));
    }
    let part = infeed_core::types::ImageInfo { height: src.rows.end - src.rows.start, ..*info };
    if part.len_bytes() != src.data.len() as u64 {
        return wrong(format!("{} bytes for {part:?}", src.data.len()));
    }
    let reads = params.y.reads(row.height, params.filter);
    if params.y.from < params.y.to && (reads.start < src.rows.start || reads.end > src.rows.end) {
        return wrong(format!("rows {reads:?} are needed and {:?} decoded", src.rows));
    }
    Ok(())
}
