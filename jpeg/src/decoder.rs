//! The decoder: settings that threads share, and the memory that each thread keeps.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::{
    baseline,
    error::{Error, Result},
    grid::Grid,
    header::{Colour, Header},
    index::Index,
    memory::grow,
    orientation::Orientation,
    planes::{Planes, Window},
    progressive,
    scan::{self, Options},
    simd::{Interleaver, Level, PlaneRows, multiply},
};

/// Decodes files, or windows of them. Cheap to clone and shared by threads; each thread has its own [`Scratch`].
///
/// ```
/// use infeed_jpeg::{Decoder, Header, Scratch, Window};
///
/// # fn f(file: &[u8]) -> infeed_jpeg::Result<()> {
/// let (decoder, mut scratch) = (Decoder::new(), Scratch::default());
/// let header = Header::parse(file)?;
/// // The upper half, as pixels.
/// let rows = 0..header.height() / 2;
/// let mut pixels = vec![0; header.len_bytes(&rows) as usize];
/// decoder.pixels(file, &header, rows, &mut scratch, &mut pixels)?;
/// // A crop at a quarter of its size, as planes.
/// let window = Window::new(&header, 100..300, 40..400).at_scale(4);
/// let mut data = Vec::new();
/// let planes = decoder.planes(file, &header, &window, &mut scratch, &mut data)?;
/// let brightness = &planes.as_slice()[0];
/// assert_eq!(brightness.step, [4, 4]);
/// let row = brightness.row(&data, 25);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    index: Option<Index>,
    fill: bool,
    strict: bool,
    level: Level,
}

/// Memory and tables that a thread keeps from image to image: a few hundred KB, plus about the planes of the largest
/// image. For progressive files also 17 KB per scan (usually ten scans, at most 100) and the scans' data.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// # let files = [file.clone(), file];
/// use infeed_jpeg::{Decoder, Header, Scratch};
///
/// // One for each thread, reused from file to file.
/// let mut scratch = Scratch::default();
/// for file in &files {
///     let header = Header::parse(file)?;
///     let rows = 0..header.height();
///     let mut pixels = vec![0; header.len_bytes(&rows) as usize];
///     Decoder::new().pixels(file, &header, rows, &mut scratch, &mut pixels)?;
///     assert_eq!(pixels.len(), 16 * 32 * 3);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Scratch {
    memory: Memory,
    planes: Vec<u8>,
    interleaver: Interleaver,
    /// A row of the black channel.
    black: Vec<u8>,
}

/// Memory for decoding to planes.
#[derive(Debug, Default)]
struct Memory {
    sequential: scan::Memory,
    progressive: progressive::Memory,
}

/// Interleaved pixels of a whole image.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// let image = infeed_jpeg::Decoder::new().decode(&file)?;
/// assert_eq!((image.height, image.width, image.channels), (16, 32, 3));
/// // The pixel of row 2 and column 5.
/// let at = (2 * image.width as usize + 5) * image.channels;
/// println!("{:?}", &image.data[at..at + image.channels]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Number of rows.
    pub height: u32,
    /// Number of columns.
    pub width: u32,
    /// Values per pixel: 1 for gray, 3 for RGB.
    pub channels: usize,
    /// Row after row, without gaps.
    pub data: Vec<u8>,
}

impl Image {
    /// Turned and mirrored by [`Header::orientation`].
    #[must_use]
    pub fn upright(self, orientation: Orientation) -> Self {
        if orientation.is_upright() {
            return self;
        }
        let lying = [self.height, self.width];
        let [height, width] = orientation.size(lying);
        let mut data = vec![0; self.data.len()];
        orientation.turn(lying, self.channels, &self.data, &mut data);
        Self { height, width, data, ..self }
    }
}

impl Decoder {
    /// No index, the best instructions of this machine; damage is an error.
    #[must_use]
    pub const fn new() -> Self {
        Self { index: None, fill: false, strict: false, level: Level::Best }
    }

    /// Uses this index, and adds to it where rows begin.
    #[must_use]
    pub fn index(mut self, index: Index) -> Self {
        self.index = Some(index);
        self
    }

    /// Accepts a file whose data is truncated or damaged, as libjpeg does: blocks from there on are gray, or in
    /// progressive files show what earlier scans hold. Headers and tables must still be whole.
    #[must_use]
    pub const fn fill(mut self, fill: bool) -> Self {
        self.fill = fill;
        self
    }

    /// Accepts a file only if all of its data is good, whatever the window: every code of every block is checked, and
    /// the data must end with the image.
    ///
    /// Without this, damage outside of the window is not detected, and bytes that are left before a marker are ignored;
    /// libjpeg only warns about them. Such bytes are usually the result of a flipped bit: the image is then shifted or
    /// ends in gray.
    ///
    /// Costs Huffman decoding of the whole file; an [index](Self::index) is not used. Has no effect if
    /// [`fill`](Self::fill) is set, which refuses nothing.
    #[must_use]
    pub const fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Uses at most the instructions of `level`, for tests and comparisons. All levels give the same bits.
    #[must_use]
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Decodes a whole file to gray or RGB and allocates the memory that it needs. For single files; for many, use
    /// [`pixels`](Self::pixels).
    ///
    /// # Errors
    /// As for [`Header::parse`] and [`pixels`](Self::pixels).
    pub fn decode(&self, file: &[u8]) -> Result<Image> {
        let header = Header::parse(file)?;
        let (height, width) = (header.height(), header.width());
        let mut data = vec![0; header.len_bytes(&(0..height)) as usize];
        self.pixels(file, &header, 0..height, &mut Scratch::default(), &mut data)?;
        Ok(Image { height, width, channels: header.channels(), data })
    }

    /// Decodes rows of a file to interleaved gray or RGB, all columns: libjpeg's pixels, bit for bit. `out` must have
    /// [`Header::len_bytes`] bytes.
    ///
    /// Costs as much as [`planes`](Self::planes), plus a conversion.
    ///
    /// # Errors
    /// `Damaged` if the data of these rows ends early or is invalid. A file without an end marker is always an error,
    /// whatever the rows (unless [`fill`](Self::fill) is set). `Misuse` for rows that the image does not have, and for
    /// an `out` of another length. After an error, the content of `out` is undefined.
    pub fn pixels(
        &self,
        file: &[u8],
        header: &Header,
        rows: Range<u32>,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<()> {
        header.check(file)?;
        let len = header.len_bytes(&rows);
        if rows.end > header.height() || out.len() as u64 != len {
            let what = format!("{} bytes for rows {rows:?} of {}: {len} are needed", out.len(), header.height());
            return Err(Error::misuse(what));
        }
        self.pixels_checked(file, header, rows, 0..header.width(), scratch, out)
    }

    /// Like [`pixels`](Self::pixels), but decodes only some columns. `out` has room for whole rows; its content outside
    /// of the columns is undefined. Blocks beside the columns are skipped as in [`planes`](Self::planes).
    ///
    /// # Errors
    /// As for [`pixels`](Self::pixels); `Misuse` also for columns that the image does not have.
    pub fn pixels_of_columns(
        &self,
        file: &[u8],
        header: &Header,
        [rows, cols]: [Range<u32>; 2],
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<()> {
        header.check(file)?;
        let len = header.len_bytes(&rows);
        if rows.end > header.height() || cols.end > header.width() || out.len() as u64 != len {
            let [height, width] = [header.height(), header.width()];
            let what = format!(
                "{} bytes for rows {rows:?} and columns {cols:?} of {width}x{height}: {len} are needed",
                out.len()
            );
            return Err(Error::misuse(what));
        }
        self.pixels_checked(file, header, rows, cols, scratch, out)
    }

    fn pixels_checked(
        &self,
        file: &[u8],
        header: &Header,
        rows: Range<u32>,
        cols: Range<u32>,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<()> {
        let Scratch { memory, planes: data, interleaver, black } = scratch;
        let window = Window::new(header, rows.clone(), cols);
        let planes = self.decode_planes(file, header, &window, memory, data)?.into_planes();
        let size = [header.height(), header.width()];
        let (colours, ink) = planes.split_at(planes.len().min(3));
        let ycbcr = matches!(header.colour(), Colour::YCbCr | Colour::Ycck);
        interleaver.run(self.level, &PlaneRows { size, planes: colours, ycbcr, data }, rows.clone(), out);
        if ink.is_empty() {
            return Ok(());
        }
        // CMYK is stored inverted, so the product with black gives light. The three channels of YCCK that were YCbCr
        // come out not inverted, so they are inverted first.
        let inverted = header.colour() == Colour::Ycck;
        let row = header.len_bytes(&(0..1)) as usize;
        grow(black, header.width() as usize, 0)?;
        let black = &mut black[..header.width() as usize];
        for (y, out) in rows.zip(out.chunks_exact_mut(row.max(1))) {
            interleaver.run(self.level, &PlaneRows { size, planes: ink, ycbcr: false, data }, y..y + 1, black);
            multiply(self.level, black, inverted, out);
        }
        Ok(())
    }

    /// Decodes a window of a file to planes in `data`, which grows as needed and is never cleared.
    ///
    /// Costs Huffman decoding up to the window's last block and the transform of the window's blocks. Skipped blocks
    /// cost less, and nothing with an [`Index`] or restart markers. At a scale of 8, only the mean of each block is
    /// computed.
    ///
    /// # Errors
    /// As for [`pixels`](Self::pixels); `Unsupported` for files [without planes](Header::has_planes).
    pub fn planes(
        &self,
        file: &[u8],
        header: &Header,
        window: &Window,
        scratch: &mut Scratch,
        data: &mut Vec<u8>,
    ) -> Result<Planes> {
        if !header.has_planes() {
            return Err(Error::unsupported("a JPEG in CMYK or YCCK has no planes"));
        }
        let list = self.decode_planes(file, header, window, &mut scratch.memory, data)?.into_planes();
        Ok(Planes { list, ycbcr: header.colour() == Colour::YCbCr })
    }

    /// The planes of a window, also for CMYK and YCCK.
    fn decode_planes(
        &self,
        file: &[u8],
        header: &Header,
        window: &Window,
        memory: &mut Memory,
        data: &mut Vec<u8>,
    ) -> Result<Grid> {
        header.check(file)?;
        if !matches!(window.scale, 1 | 2 | 4 | 8) {
            return Err(Error::misuse(format!("a scale of {}: use 1, 2, 4 or 8", window.scale)));
        }
        let grid = Grid::new(header, window);
        grow(data, grid.bytes(), 0)?;
        let data = &mut data[..grid.bytes()];
        if header.is_progressive() {
            progressive::decode(file, header, &grid, self.options(), &mut memory.progressive, data)?;
        } else {
            scan::decode(file, header, &grid, self.options(), &mut memory.sequential, data)?;
        }
        Ok(grid)
    }

    /// Reads all of a file's data without decoding it, so that the [index](Self::index) gets every row. Does nothing
    /// for a file that is in the index already, for a file that an index can't help, and without an index.
    ///
    /// Costs half of decoding the file, once.
    ///
    /// # Errors
    /// As for [`Header::parse`] and [`planes`](Self::planes).
    pub fn learn(&self, file: &[u8], scratch: &mut Scratch) -> Result<()> {
        let header = Header::parse(file)?;
        if self.index.is_none() || !header.has_planes() {
            return Ok(());
        }
        // The last unit: everything before it is skipped, and noted.
        let last = Window::new(&header, header.height() - 1..header.height(), header.width() - 1..header.width());
        let Scratch { memory, planes, .. } = scratch;
        self.decode_planes(file, &header, &last, memory, planes).map(|_| ())
    }

    /// Writes a progressive file anew as a baseline file with the same coefficients: the same pixels, bit for bit, in
    /// every decoder, with notes such as EXIF and ICC. Windows of baseline files decode faster, and the engines of GPUs
    /// take them. They are about 4 % larger. With `restarts`, a restart marker follows each row of
    /// blocks, so that a decoder can begin at any row.
    ///
    /// Returns `None` if the file is not progressive, or if baseline can't hold it: values of more than 8-bit pixels
    /// make, or more than ten blocks in a unit.
    ///
    /// Costs two passes over the file's scans, without transforms. Memory does not grow with the image, apart from the
    /// result.
    ///
    /// ```
    /// use infeed_jpeg::{Decoder, Scratch};
    ///
    /// # fn f(file: &[u8]) -> infeed_jpeg::Result<()> {
    /// let decoder = Decoder::new();
    /// if let Some(baseline) = decoder.to_baseline(file, false, &mut Scratch::default())? {
    ///     assert_eq!(decoder.decode(&baseline)?, decoder.decode(file)?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Header::parse`] and [`pixels`](Self::pixels); [`fill`](Self::fill) has no effect.
    pub fn to_baseline(&self, file: &[u8], restarts: bool, scratch: &mut Scratch) -> Result<Option<Vec<u8>>> {
        let header = Header::parse(file)?;
        if !header.is_progressive() {
            return Ok(None);
        }
        baseline::rewrite(file, &header, self.options(), restarts, &mut scratch.memory.progressive)
    }

    const fn options(&self) -> Options<'_> {
        let strict = self.strict && !self.fill;
        Options { index: self.index.as_ref(), fill: self.fill, strict, level: self.level }
    }
}
