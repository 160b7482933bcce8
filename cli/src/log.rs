//! `INFEED_LOG`: which lines of the library's log are shown on stderr.

use std::env;

use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::failure::Failure;

const NAME: &str = "INFEED_LOG";
/// Bad samples are told by the commands themselves.
const DEFAULT: &str = "warn,infeed::engine::assembly=error";

/// What is shown: `debug` shows decisions, `trace` each request.
pub(crate) fn from_env() -> Result<Targets, Failure> {
    let text = match env::var(NAME) {
        Ok(text) => text,
        Err(env::VarError::NotPresent) => DEFAULT.into(),
        Err(error) => return Err(Failure::Usage(format!("{NAME}: {error}"))),
    };
    parse(&text)
}

/// Reads a level, or levels by target: `debug`, `warn,infeed::source=trace`.
fn parse(text: &str) -> Result<Targets, Failure> {
    let mut targets = Targets::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let refuse = || {
            let levels = "a level is error, warn, info, debug, trace or off";
            Failure::Usage(format!("{NAME}: {part:?} is neither a level nor target=level; {levels}"))
        };
        let (target, level) = part.split_once('=').map_or((None, part), |(target, level)| (Some(target.trim()), level));
        let level: LevelFilter = level.trim().parse().map_err(|_| refuse())?;
        targets = match target {
            None => targets.with_default(level),
            // Spans and their fields can't be named: a target is a module.
            Some(target) if !target.is_empty() && !target.contains(['[', '{', '=']) => {
                targets.with_target(target, level)
            }
            Some(_) => return Err(refuse()),
        };
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_level_or_a_level_by_target() {
        let shows = |text: &str, target: &str, level: Level| parse(text).unwrap().would_enable(target, &level);
        for (text, target, level, want) in [
            (DEFAULT, "infeed::loader", Level::WARN, true),
            (DEFAULT, "infeed::loader", Level::INFO, false),
            (DEFAULT, "infeed::engine::assembly", Level::WARN, false),
            ("debug", "hyper", Level::DEBUG, true),
            ("debug,", "infeed", Level::DEBUG, true),
            (" warn , infeed::source = TRACE ", "infeed::source::cache", Level::TRACE, true),
            ("warn,infeed=debug,infeed::engine=off", "infeed::engine::run", Level::ERROR, false),
            ("infeed=debug", "hyper", Level::ERROR, false),
            ("", "infeed", Level::ERROR, false),
        ] {
            assert_eq!(shows(text, target, level), want, "{text:?} {target} {level}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, part) in [
            ("debgu", "\"debgu\""),
            ("warn,infeed", "\"infeed\""),
            ("warn,infeed=loud", "\"infeed=loud\""),
            ("infeed[infeed.read]=trace", "\"infeed[infeed.read]=trace\""),
            ("=debug", "\"=debug\""),
        ] {
            let Err(Failure::Usage(message)) = parse(text) else { panic!("{text:?} was taken") };
            assert!(message.contains(part) && message.contains("target=level"), "{message}");
        }
    }
}
