//! Views: several rows of each image.

use std::str::FromStr;

use infeed_core::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::chain::Transform;

/// Most views of an image. A mistyped number gives an error instead of a huge allocation.
const MOST: usize = 1000;

/// One view of each image of a record, or several with the same steps. All views are made of one image, which is read
/// and decoded once. For `LoaderBuilder::views`.
///
/// View `global0` of the field `image` is the field `image.global0` of a batch; five views named `local` are
/// `image.local0` to `image.local4`. Masks have the same views and move alike: `mask.global0`.
///
/// As text: a name, `=` and the steps, as in `global0=random_resized_crop:224;horizontal_flip;to_float`, or
/// `local*5=random_resized_crop:96;to_float`. In JSON `{"name": "local", "count": 5, "transform": [...]}`.
///
/// ```
/// use infeed::transform::{Transform, View};
///
/// let steps = Transform::new().random_resized_crop(96).to_float();
/// let local: View = "local*5=random_resized_crop:96;to_float".parse()?;
/// assert_eq!(local, View::new("local", steps).count(5));
/// assert_eq!(local.names().last().as_deref(), Some("local4"));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct View {
    /// The part after the field's name and a dot: letters, digits, `_` and `-`.
    pub name: String,
    /// How many views, each with its own draws; their names end in a number. `None`: one, without a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The steps from the image to the view's row.
    pub transform: Transform,
}

/// Names for [`View::preset`]:
///
/// | name | views |
/// |---|---|
/// | `dino` | of [DINO](https://arxiv.org/abs/2104.14294): `global0`, `global1`, `local0` to `local7`, by the transforms `dino-global-1`, `dino-global-2`, `dino-local` |
pub const VIEW_PRESETS: [&str; 1] = ["dino"];

impl View {
    /// One view.
    #[must_use]
    pub fn new(name: impl Into<String>, transform: Transform) -> Self {
        Self { name: name.into(), count: None, transform }
    }

    /// Sets the number of views; they are numbered from 0.
    #[must_use]
    pub const fn count(mut self, count: u32) -> Self {
        self.count = Some(count);
        self
    }

    /// One of [`VIEW_PRESETS`] by name.
    ///
    /// # Errors
    /// `Config` for an unknown name.
    pub fn preset(name: &str) -> Result<Vec<Self>> {
        let view = |name: &str, transform| Ok(Self::new(name, Transform::preset(transform)?));
        match name {
            "dino" => Ok(vec![
                view("global0", "dino-global-1")?,
                view("global1", "dino-global-2")?,
                view("local", "dino-local")?.count(8),
            ]),
            _ => Err(Error::config(format!("there are no views {name:?}"))
                .with_hint(format!("use {}, or NAME=STEPS", VIEW_PRESETS.join(", ")))),
        }
    }

    /// The names of all its views.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let numbered = self.count.map(|count| (0..count).map(|n| format!("{}{n}", self.name)));
        let one = self.count.is_none().then(|| self.name.clone());
        one.into_iter().chain(numbered.into_iter().flatten())
    }

    /// Name and steps of each of `views`, one entry per name.
    #[doc(hidden)]
    pub fn each(views: &[Self]) -> Result<Vec<(String, &Transform)>> {
        let mut each: Vec<(String, &Transform)> = Vec::new();
        for view in views {
            let Self { name, count, transform } = view;
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if name.is_empty() || !name.chars().all(fits) {
                return Err(Error::config(format!("a view is called {name:?}"))
                    .with_hint("use letters, digits, _ and -, and no dot"));
            }
            let many = count.map_or(1, |count| count as usize);
            if many == 0 || each.len() + many > MOST {
                return Err(Error::config(format!("view {name} comes {many} times, after {} others", each.len()))
                    .with_hint(format!("use 1 to {MOST} views in total")));
            }
            for name in view.names() {
                if each.iter().any(|(other, _)| *other == name) {
                    return Err(
                        Error::config(format!("two views are called {name}")).with_hint("give each its own name")
                    );
                }
                each.push((name, transform));
            }
        }
        Ok(each)
    }
}

impl FromStr for View {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let Some((name, steps)) = line.split_once('=') else {
            return Err(Error::config(format!("{line:?} is not a view"))
                .with_hint("use NAME=STEPS, such as local*8=random_resized_crop:96;to_float"));
        };
        let (name, count) = match name.split_once('*') {
            Some((name, count)) => {
                let number = count.trim().parse();
                let number = number.map_err(|_| {
                    Error::config(format!("{line:?} has {count:?} views")).with_hint("use a whole number after the *")
                })?;
                (name, Some(number))
            }
            None => (name, None),
        };
        let transform = steps.parse().map_err(|error: Error| error.at_object(format!("view {}", name.trim())))?;
        Ok(Self { name: name.trim().to_owned(), count, transform })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_read_from_text_and_json_alike() {
        let views = View::preset("dino").unwrap();
        let names: Vec<String> = views.iter().flat_map(View::names).collect();
        assert_eq!(names.len(), 10);
        assert_eq!((&*names[1], &*names[2], &*names[9]), ("global1", "local0", "local7"));
        let lines = ["global0=dino-global-1", "global1 = dino-global-2", "local*8=dino-local;"];
        let read: Vec<View> = lines.iter().map(|line| line.parse().unwrap()).collect();
        assert_eq!(read, views);
        let json = serde_json::to_string(&views).unwrap();
        assert_eq!(serde_json::from_str::<Vec<View>>(&json).unwrap(), views);
        let local = r#"{"name":"local","count":2,"transform":[{"op":"to_float"}]}"#;
        assert_eq!(serde_json::to_string(&View::new("local", Transform::new().to_float()).count(2)).unwrap(), local);
    }

    #[test]
    fn what_is_no_list_of_views_is_refused_with_the_reason() {
        let view = |name: &str| View::new(name, Transform::new());
        let cases = [
            (vec![view("a"), view("b"), view("a")], "two views are called a"),
            (vec![view("a1"), view("a").count(2)], "two views are called a1"),
            (vec![view("a.b")], "a view is called \"a.b\""),
            (vec![view("")], "a view is called \"\""),
            (vec![view("a").count(0)], "view a comes 0 times"),
            (vec![view("b"), view("a").count(1000)], "view a comes 1000 times, after 1 others"),
        ];
        for (views, want) in cases {
            let error = View::each(&views).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
        for (line, want) in [
            ("dino-local", "is not a view"),
            ("a*x=to_float", "has \"x\" views"),
            ("a=to_flaot", "view a"),
            ("a*-1=to_float", "has \"-1\" views"),
        ] {
            let error = line.parse::<View>().unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
        assert!(View::preset("dyno").unwrap_err().to_string().contains("use dino"));
    }
}
