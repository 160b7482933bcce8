//! Which arrays of several records are lists.

use infeed_core::types::DType;

/// Whether two arrays have as many axes, and differ at most in the length of the first.
pub fn differ_in_length(a: &[usize], b: &[usize]) -> bool {
    matches!((a, b), ([_, a @ ..], [_, b @ ..]) if a == b)
}

/// Whether arrays that differ in length are lists, unless the user sets the kind: numbers, or rows of numbers such as
/// boxes and points. With more axes, or of bytes, they may be pictures.
pub fn is_usual_list(dtype: DType, shape: &[usize]) -> bool {
    match shape {
        [_] => true,
        [_, row] => *row > 0 && dtype != DType::U8,
        _ => false,
    }
}
