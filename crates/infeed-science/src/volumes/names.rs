//! Which file is which field of which patient.

use std::collections::BTreeMap;

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_data::names::ends_with;

/// Endings of volume files. The longer first, so that a stem is without all of them.
pub(super) const ENDINGS: [&str; 4] = [".nii.gz", ".nii", ".nrrd", ".nhdr"];

/// The name without its ending, when it is a volume's.
pub(super) fn stem(name: &str) -> Option<&str> {
    let stem = |ending: &&str| {
        let (stem, end) = name.split_at_checked(name.len().checked_sub(ending.len())?)?;
        end.eq_ignore_ascii_case(ending).then_some(stem)
    };
    ENDINGS.iter().find_map(stem).filter(|stem| !stem.is_empty() && !stem.ends_with('/'))
}

/// Whether a volume of this name is NRRD's, with a header that no other one describes.
pub(super) fn has_header(name: &str) -> bool {
    [".nrrd", ".nhdr"].into_iter().any(|ending| ends_with(name, ending))
}

/// `{patient}/{field}`, `{patient}_{field}.nrrd`, `images/{field}/{patient}.nii.gz`, …
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    before: String,
    between: String,
    after: String,
    patient_first: bool,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let refused = || {
            Error::config(format!(
                "the pattern `{text}` does not hold {{patient}} and {{field}} once each, with text between"
            ))
            .hint("write it like {patient}/{field}.nrrd or {patient}_{field}.nii.gz")
        };
        let (patient, field) = (text.find("{patient}"), text.find("{field}"));
        let (Some(patient), Some(field)) = (patient, field) else { return Err(refused()) };
        let patient_first = patient < field;
        let words = if patient_first { ["{patient}", "{field}"] } else { ["{field}", "{patient}"] };
        let (before, rest) = text.split_once(words[0]).ok_or_else(refused)?;
        let (between, after) = rest.split_once(words[1]).ok_or_else(refused)?;
        if between.is_empty() || after.contains('{') || before.contains('{') || between.contains('{') {
            return Err(refused());
        }
        // Without an ending it stands for all of them.
        let after = stem(&format!("x{after}")).map_or(after, |stem| &after[..stem.len() - 1]);
        Ok(Self { before: before.into(), between: between.into(), after: after.into(), patient_first })
    }

    /// Patient and field of a name.
    fn split<'a>(&self, name: &'a str) -> Option<(&'a str, &'a str)> {
        self.split_stem(stem(name)?)
    }

    /// The same, of a name without its ending.
    pub(super) fn split_stem<'a>(&self, stem: &'a str) -> Option<(&'a str, &'a str)> {
        let middle = stem.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let at = if self.patient_first { middle.rfind(&self.between) } else { middle.find(&self.between) }?;
        let (first, second) = (&middle[..at], &middle[at + self.between.len()..]);
        let (patient, field) = if self.patient_first { (first, second) } else { (second, first) };
        (!patient.is_empty() && !field.is_empty() && !field.contains('/')).then_some((patient, field))
    }
}

/// Files by patient and field: indices into `names`, patients in the order of their names.
///
/// Without a pattern, files in folders are `{patient}/{field}`, files without are `{patient}_{field}`.
pub(super) fn group<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    pattern: Option<&str>,
) -> Result<BTreeMap<&'a str, BTreeMap<&'a str, usize>>> {
    let in_folders = names.clone().filter(|name| stem(name).is_some()).any(|name| name.contains('/'));
    let pattern =
        Pattern::parse(pattern.unwrap_or(if in_folders { "{patient}/{field}" } else { "{patient}_{field}" }))?;
    let mut patients: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let all: Vec<&str> = names.collect();
    for (index, name) in all.iter().copied().enumerate() {
        let Some((patient, field)) = pattern.split(name) else { continue };
        let files = patients.entry(patient).or_default();
        // A detached header beside the NIfTI file that holds its voxels.
        let (detached, nifti) = (|name: &str| ends_with(name, ".nhdr"), |name: &str| !has_header(name));
        match files.get(field).map(|before| all[*before]) {
            Some(before) if detached(before) && nifti(name) => continue,
            Some(before) if detached(name) && nifti(before) => drop(files.remove(field)),
            _ => {}
        }
        if files.insert(field, index).is_some() {
            return Err(Error::new(ErrorKind::Unsupported, format!("patient `{patient}` has two files for `{field}`"))
                .at_object(name)
                .hint("remove one, or give a pattern that tells them apart"));
        }
    }
    Ok(patients)
}

/// A field of the dataset: files that are its channels, and whether it is a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldFiles {
    pub(super) name: String,
    pub(super) files: Vec<String>,
    pub(super) mask: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pattern: &str, name: &str) -> Option<(String, String)> {
        Pattern::parse(pattern).unwrap().split(name).map(|(p, f)| (p.to_owned(), f.to_owned()))
    }

    #[test]
    fn patterns_find_patient_and_field() {
        let found = |patient: &str, field: &str| Some((patient.to_owned(), field.to_owned()));
        assert_eq!(split("{patient}/{field}", "a/b/ct.nrrd"), found("a/b", "ct"));
        assert_eq!(split("{patient}/{field}.nrrd", "p1/ct.NII.GZ"), found("p1", "ct"));
        assert_eq!(split("{patient}_{field}", "p_1_ct.nii.gz"), found("p_1", "ct"));
        assert_eq!(split("{field}/{patient}.nii.gz", "ct/p1.nii.gz"), found("p1", "ct"));
        assert_eq!(split("train/{patient}-{field}-v2.nrrd", "train/p1-ct-v2.nrrd"), found("p1", "ct"));
        assert_eq!(split("train/{patient}-{field}", "val/p1-ct.nrrd"), None);
        assert_eq!(split("{patient}/{field}", "p1/ct.raw"), None);
        assert_eq!(split("{patient}_{field}", "ct.nrrd"), None);
        for bad in ["", "{patient}", "{patient}{field}", "{patient}_{field}_{field}", "{patient}/{x}_{field}"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_grouped_with_or_without_folders() {
        let folders = ["p2/ct.nrrd", "p1/ct.nrrd", "p1/mask.nrrd", "readme.txt"];
        let found = group(folders.into_iter(), None).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["p1", "p2"]);
        assert_eq!(found["p1"]["mask"], 2);
        let flat = group(["p1_ct.nii", "p1_mask.nii.gz", "p2_ct.nii"].into_iter(), None).unwrap();
        assert_eq!(flat["p1"].len(), 2);
        let both = ["p/ct.nhdr", "p/ct.nii.gz", "q/ct.NII", "q/ct.nhdr"];
        let found = group(both.into_iter(), None).unwrap();
        assert_eq!((found["p"]["ct"], found["q"]["ct"]), (0, 3));
        let error = group(["p/ct.nii", "p/ct.nrrd"].into_iter(), None).unwrap_err().to_string();
        assert!(error.contains("patient `p` has two files for `ct`"), "{error}");
    }
}
