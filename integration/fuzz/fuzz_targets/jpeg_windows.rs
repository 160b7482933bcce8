//! The package of the JPEG decoder as a stranger may use it: any window, at any scale, of any bytes, with an index that other
//! windows of the file filled. The first bytes say what is asked for, the others are the file.
#![no_main]

use infeed_jpeg::{Decoder, ErrorKind, Header, Index, Level, Result, Scratch, Window};

/// Larger images only cost time.
const MOST_BYTES: u64 = 400 << 10;

/// All values that are held.
fn planes(decoder: &Decoder, file: &[u8], header: &Header, window: &Window, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let planes = decoder.planes(file, header, window, scratch, &mut data)?;
    let rows =
        |plane: &infeed_jpeg::Plane| plane.rows.clone().flat_map(|y| plane.row(&data, y).to_vec()).collect::<Vec<_>>();
    Ok(planes.as_slice().iter().flat_map(rows).collect())
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((asked, file)) = input.split_first_chunk::<32>() else { return };
    let header = match Header::parse(file) {
        Ok(header) if header.peak_bytes() <= MOST_BYTES => header,
        Ok(_) => return,
        Err(error) => {
            assert!(error.offset().is_some_and(|at| at <= file.len()), "{error}");
            return;
        }
    };
    let (plain, indexed) = (Decoder::new(), Decoder::new().index(Index::new(1 << 20)));
    let mut scratch = Scratch::default();
    let all = 0..header.height();
    let mut pixels = vec![0; header.len_bytes(&all) as usize];
    let whole = plain.pixels(file, &header, all.clone(), &mut scratch, &mut pixels);
    if let Err(error) = &whole {
        assert!(error.kind() != ErrorKind::Misuse && error.offset().is_some_and(|at| at <= file.len()), "{error}");
    }
    match plain.to_baseline(file, asked[0] % 2 == 1, &mut scratch) {
        Ok(Some(baseline)) => assert!(plain.decode(&baseline).expect("we wrote it").data == pixels && whole.is_ok()),
        Ok(None) => {}
        Err(_) => assert!(whole.is_err()),
    }
    for (n, ask) in asked.as_chunks::<8>().0.iter().enumerate() {
        // Some beyond the image, and some whose end lies before their start.
        let number = |at: usize, size: u32| u32::from(ask[at]) * (size + 9) / 255;
        let (height, width) = (header.height(), header.width());
        let [rows, cols] = [number(0, height)..number(1, height), number(2, width)..number(3, width)];
        let mut part = vec![0; header.len_bytes(&rows) as usize];
        let asked = [rows.clone(), cols.clone()];
        let decoded = plain.pixels_of_columns(file, &header, asked, &mut scratch, &mut part);
        if rows.end <= height && cols.end <= width && whole.is_ok() && rows.start <= rows.end && cols.start <= cols.end
        {
            decoded.expect("the whole file is good");
            let [row, pixel] = [header.len_bytes(&(0..1)) as usize, header.channels()];
            let within = pixel * cols.start as usize..pixel * cols.end as usize;
            for (y, part) in rows.clone().zip(part.chunks(row.max(1))) {
                assert_eq!(part[within.clone()], pixels[y as usize * row..][..row][within.clone()], "row {y}");
            }
        }
        let within = [number(4, height)..number(5, height), number(6, width)..number(7, width)];
        let mut window = Window::new(&header, rows, cols).at_scale(1 << ((n + usize::from(ask[0])) % 4));
        if ask[7] % 2 == 1 {
            window.within = within;
        }
        // Ink.
        if !header.has_planes() {
            assert!(planes(&plain, file, &header, &window, &mut scratch).is_err());
            continue;
        }
        let one = planes(&plain, file, &header, &window, &mut scratch);
        for other in [&indexed, &Decoder::new().level(Level::Portable)] {
            let other = planes(other, file, &header, &window, &mut scratch);
            if whole.is_ok() {
                assert_eq!(one.as_ref().expect("the whole file is good"), &other.expect("so it is"), "{window:?}");
            }
        }
        let _ = planes(&Decoder::new().fill(true), file, &header, &window, &mut scratch);
    }
});
