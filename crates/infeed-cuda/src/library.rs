//! Loads libraries, which may be missing, by name at run time.

use libloading::Library;

/// Loads the first of these libraries that exists, for the life of the process, and returns it with its name. The error
/// names the library that exists but does not load; if none exists, the first one.
pub(super) fn load(names: &[&str]) -> Result<(&'static Library, String), String> {
    let mut reason = None;
    for name in names {
        // SAFETY: runs the initialisers of a system library of NVIDIA, or of the library that the user names.
        match unsafe { Library::new(*name) } {
            // Leaked, so never unloaded: the driver's own threads run its code.
            Ok(library) => return Ok((Box::leak(Box::new(library)), (*name).to_owned())),
            Err(error) => {
                // The words of glibc and musl for a missing file: the library itself, not one that it depends on.
                let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                let missing = ["cannot open shared object file", "No such file", "Error loading shared library"];
                let absent = text.contains(*name) && missing.iter().any(|part| text.contains(part));
                if !absent {
                    return Err(format!("{name} does not load: {text}"));
                }
                reason.get_or_insert_with(|| format!("{name} not found"));
            }
        }
    }
    Err(reason.unwrap_or_else(|| "no library to look for".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_is_told_from_a_missing_one() {
        let path = std::env::temp_dir().join(format!("infeed-no-library-{}.so", std::process::id()));
        std::fs::write(&path, "not ELF").unwrap();
        let reason = load(&[path.to_str().unwrap()]).err();
        std::fs::remove_file(&path).unwrap();
        assert!(reason.as_ref().is_some_and(|reason| reason.contains("does not load")), "{reason:?}");
    }

    #[test]
    fn the_first_name_is_the_one_that_is_missed() {
        assert_eq!(load(&["libnone-a.so.1", "libnone-b.so"]).err(), Some("libnone-a.so.1 not found".into()));
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn later_names_are_tried() {
        assert_eq!(load(&["libnone-a.so.1", "libc.so.6"]).unwrap().1, "libc.so.6");
    }
}
