//! The matrices of torchvision's warps, computed from their parameters in f64.

use crate::kernels::Map;

/// The centre relative to the picture's middle, which is torchvision's default.
fn offset(center: Option<[f64; 2]>, height: u32, width: u32) -> [f64; 2] {
    center.map_or([0.0; 2], |[x, y]| [x - f64::from(width) * 0.5, y - f64::from(height) * 0.5])
}

/// `_get_inverse_affine_matrix`: degrees, pixels x and y; the centre is relative to the picture's middle.
fn inverse(center: [f64; 2], angle: f64, translate: [f64; 2], scale: f64, shear: [f64; 2]) -> [f64; 6] {
    let (turn, [sx, sy]) = (angle.to_radians(), shear.map(f64::to_radians));
    let [cx, cy] = center;
    let (to_x, to_y) = (cx + translate[0], cy + translate[1]);
    let a = (turn - sy).cos() / sy.cos();
    let b = -(a * sx.tan() + turn.sin());
    let c = (turn - sy).sin() / sy.cos();
    let d = turn.cos() - c * sx.tan();
    let [a, b, c, d] = [d / scale, -b / scale, -c / scale, a / scale];
    [a, b, cx - a * to_x - b * to_y, c, d, cy - c * to_x - d * to_y]
}

/// `F.affine`: `angle` and `shear` (x, y) in degrees, `translate` (x, y) in pixels, `scale` above 0, `center` (x, y) in
/// pixels from the top left corner; default: the middle.
pub(super) fn affine(
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    center: Option<[f64; 2]>,
    height: u32,
    width: u32,
) -> Map {
    Map::Affine(inverse(offset(center, height, width), angle, translate, scale, shear))
}

/// `F.rotate` without `expand`: degrees, counter-clockwise; `center` (x, y) in pixels from the top left corner;
/// default: the middle.
///
/// As in torchvision, half and whole turns around the middle are exact, and so are quarter turns of square pictures.
pub(super) fn rotate(angle: f64, center: Option<[f64; 2]>, height: u32, width: u32) -> Map {
    let angle = angle.rem_euclid(360.0);
    if center.is_none() {
        let square = height == width;
        // For whole numbers the kernel only moves pixels.
        let turn = match angle {
            0.0 => Some([1.0, 0.0, 0.0, 1.0]),
            180.0 => Some([-1.0, 0.0, 0.0, -1.0]),
            90.0 if square => Some([0.0, -1.0, 1.0, 0.0]),
            270.0 if square => Some([0.0, 1.0, -1.0, 0.0]),
            _ => None,
        };
        if let Some([a, b, c, d]) = turn {
            return Map::Affine([a, b, 0.0, c, d, 0.0]);
        }
    }
    // Here torchvision rotates in the opposite direction to `affine`.
    Map::Affine(inverse(offset(center, height, width), -angle, [0.0; 2], 1.0, [0.0; 2]))
}

/// `F.perspective`: the map that takes the corners (x, y) from `start` to `end`. `None` if there is none because three
/// corners are on a line.
///
/// Coefficients are rounded to f32, as torchvision's are.
pub(super) fn perspective(start: &[[f64; 2]; 4], end: &[[f64; 2]; 4]) -> Option<Map> {
    // Each corner gives an equation for x and one for y. The outputs are the known values.
    let mut rows = [[0.0; 9]; 8];
    for (i, ([u, v], [x, y])) in start.iter().zip(end).enumerate() {
        rows[2 * i] = [*x, *y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, *u];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, *x, *y, 1.0, -v * x, -v * y, *v];
    }
    let solution = solve(rows)?;
    Some(Map::Perspective(solution.map(|v| f64::from(v as f32))))
}

/// Gaussian elimination with partial pivoting.
fn solve(mut rows: [[f64; 9]; 8]) -> Option<[f64; 8]> {
    let size = rows.iter().flatten().fold(0.0f64, |most, v| most.max(v.abs()));
    for column in 0..8 {
        let pivot = (column..8).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        // The column depends on the others: only rounding errors are left.
        if rows[column][column].abs() <= size * 1e-12 {
            return None;
        }
        let (done, rest) = rows.split_at_mut(column + 1);
        for row in rest {
            let factor = row[column] / done[column][column];
            for (value, above) in row.iter_mut().zip(&done[column]).skip(column) {
                *value -= factor * above;
            }
        }
    }
    let mut found = [0.0; 8];
    for i in (0..8).rev() {
        let rest: f64 = (i + 1..8).map(|k| rows[i][k] * found[k]).sum();
        found[i] = (rows[i][8] - rest) / rows[i][i];
    }
    found.iter().all(|v: &f64| v.is_finite()).then_some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::kernels::{PixelOp, Sampling, Tile, TileRunner};

    fn golden(part: &str) -> Vec<Vec<Value>> {
        let mut all: Value =
            serde_json::from_str(include_str!("../../../../integration/golden/pixel_ops.json")).unwrap();
        serde_json::from_value(all[part].take()).unwrap()
    }

    fn numbers(values: &[Value]) -> Vec<f64> {
        values.iter().map(|v| v.as_f64().unwrap()).collect()
    }

    fn corners(value: &Value) -> [[f64; 2]; 4] {
        let flat = numbers(value.as_array().unwrap());
        [0, 1, 2, 3].map(|i| [flat[2 * i], flat[2 * i + 1]])
    }

    #[test]
    fn affine_matrices_are_torchvisions() {
        let cases = golden("affines");
        assert!(!cases.is_empty());
        for case in cases {
            let center = case[6].as_f64().map(|x| [x, case[7].as_f64().unwrap()]);
            let v = numbers(&case[..6]);
            let [height, width] = [8, 9].map(|i| case[i].as_u64().unwrap() as u32);
            let map = affine(v[0], [v[1], v[2]], v[3], [v[4], v[5]], center, height, width);
            let Map::Affine(found) = map else { panic!("{map:?}") };
            for (found, want) in found.iter().zip(numbers(&case[10..])) {
                assert!((found - want).abs() <= 1e-12 * want.abs().max(100.0), "{case:?}: {found} not {want}");
            }
        }
    }

    #[test]
    fn rotated_pictures_are_torchvisions() {
        for case in golden("rotations") {
            let angle = case[0].as_f64().unwrap();
            let [height, width] = [1, 2].map(|i| case[i].as_u64().unwrap() as u32);
            let mut tile = Tile::default();
            tile.reset(height, width, 1, false).unwrap();
            tile.bytes_mut().iter_mut().zip(0..).for_each(|(value, i)| *value = i);
            let map = rotate(angle, None, height, width);
            TileRunner::new()
                .run(&[PixelOp::Warp { map, sampling: Sampling::Nearest, fill: None }], &mut tile)
                .unwrap();
            let found: String = tile.bytes().iter().map(|v| format!("{v:02x}")).collect();
            assert_eq!(found, case[3].as_str().unwrap(), "{angle} of {height}x{width}");
        }
    }

    #[test]
    fn perspective_coefficients_are_torchvisions() {
        for case in golden("perspectives") {
            let map = perspective(&corners(&case[0]), &corners(&case[1])).unwrap();
            let Map::Perspective(found) = map else { panic!("{map:?}") };
            for (found, want) in found.iter().zip(numbers(case[2].as_array().unwrap())) {
                assert!((found - want).abs() <= 2e-7 * want.abs() + 1e-12, "{case:?}: {found} not {want}");
            }
        }
    }

    #[test]
    fn corners_on_a_line_have_no_map() {
        let start = [[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 9.0]];
        assert_eq!(perspective(&start, &[[0.0, 0.0], [3.0, 0.0], [6.0, 0.0], [0.0, 9.0]]), None);
        assert_eq!(perspective(&start, &[[1.0, 1.0]; 4]), None);
    }
}
