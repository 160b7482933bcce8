//! Credentials that a program prints.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html>
//!
//! The program is run as the AWS command line runs it: its words are split at spaces outside of quotes, and no shell is
//! involved, so `$`, `~` and `;` have no special meaning. Nothing that it prints appears in a message, because that may
//! be secret.

use std::{io, process::Stdio, time::Duration};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use tokio::{io::AsyncReadExt, process::Command};

use super::{
    super::{pages::wrap, profile::Profile},
    renewed::{Issued, Issuer},
};

/// The most bytes read of its output.
const MOST: u64 = 64 << 10;
/// A program that takes longer is probably waiting for input.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Process {
    words: Vec<String>,
    profile: String,
    file: String,
}

impl Process {
    pub(super) fn new(command: &str, profile: &Profile) -> Result<Self> {
        let words = split(command, cfg!(windows)).filter(|words| !words.is_empty());
        let process = Self {
            words: words.unwrap_or_default(),
            profile: profile.name.clone(),
            file: profile.file.display().to_string(),
        };
        match process.words.is_empty() {
            true => Err(process.failed("ends within a quote or after a backslash").with_hint("close the quotes")),
            false => Ok(process),
        }
    }

    fn failed(&self, what: &str) -> Error {
        Error::new(ErrorKind::Denied, format!("credential_process of the profile `{}` {what}", self.profile))
            .at_object(self.file.as_str())
    }

    async fn run(&self) -> Result<Vec<u8>> {
        let by_hand = "run the program by hand to see why";
        let fails = |error: io::Error| self.failed("cannot be run").with_hint(by_hand).with_source(error);
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ends the program when its result is no longer awaited.
        let mut child = command.kill_on_drop(true).spawn().map_err(fails)?;
        let stdout = child.stdout.take();
        let ended = async {
            let mut text = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MOST).read_to_end(&mut text).await?;
            }
            Ok((child.wait().await?, text))
        };
        let Ok(ended) = tokio::time::timeout(PATIENCE, ended).await else {
            return Err(self.failed(&format!("did not end within {} s", PATIENCE.as_secs())).with_hint(by_hand));
        };
        let (status, text) = ended.map_err(fails)?;
        match status.success() {
            true => Ok(text),
            false => Err(self.failed(&format!("ended with {status}")).with_hint(by_hand)),
        }
    }
}

#[async_trait]
impl Issuer for Process {
    async fn issue(&self) -> object_store::Result<Issued> {
        let text = self.run().await.map_err(wrap)?;
        let odd = |what: &str| wrap(self.failed(&format!("printed something other than credentials: {what}")));
        let answer: serde_json::Value = serde_json::from_slice(&text).map_err(|_| odd("it is not JSON"))?;
        if answer.get("Version").and_then(serde_json::Value::as_u64) != Some(1) {
            return Err(odd("its Version is not 1"));
        }
        Issued::of_json(&answer).map_err(|what| odd(&what))
    }
}

/// Splits as Python's `shlex` does, with quotes and backslashes. On Windows a backslash is literal, except before a
/// double quote, and single quotes are literal. `None` if a quote is not closed.
fn split(command: &str, windows: bool) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = command.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            _ if quote.is_none() && letter.is_ascii_whitespace() => words.extend(word.take()),
            '\\' if quote != Some('\'') => {
                let escapes = match (windows, quote) {
                    (true, _) => letters.peek() == Some(&'"'),
                    (false, None) => true,
                    (false, Some(_)) => matches!(letters.peek(), Some('"' | '\\')),
                };
                let meant = if escapes { letters.next()? } else { letter };
                word.get_or_insert_default().push(meant);
            }
            '"' | '\'' if quote == Some(letter) => quote = None,
            '"' | '\'' if quote.is_none() && !(windows && letter == '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_that_nobody_waits_for_any_more_ends() {
        let dir = tempfile::tempdir().unwrap();
        let began = dir.path().join("began");
        let script = format!("echo $$ > {0}.part; mv {0}.part {0}; exec sleep 1000", began.display());
        let words = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let process = Process { words, profile: String::new(), file: String::new() };
        let pid = tokio::select! {
            ended = process.run() => panic!("{ended:?}"),
            pid = async {
                loop {
                    if let Ok(pid) = std::fs::read_to_string(&began) {
                        break pid;
                    }
                    tokio::task::yield_now().await;
                }
            } => pid,
        };
        // Gone, or dead but not waited for yet.
        let status = || std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
        while status().is_ok_and(|status| !status.contains("State:\tZ")) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn words_are_split_as_the_command_line_of_aws_splits_them() {
        for (command, words) in [
            ("/bin/tool --role x", Some(vec!["/bin/tool", "--role", "x"])),
            ("  'a b'\t\"c d\"e ", Some(vec!["a b", "c de"])),
            (r#"a\ b "\"\x" '\' """#, Some(vec!["a b", r#""\x"#, r"\", ""])),
            ("echo $HOME ~ `id` ; rm", Some(vec!["echo", "$HOME", "~", "`id`", ";", "rm"])),
            ("", Some(vec![])),
            ("'open", None),
            ("\"open", None),
            ("end\\", None),
        ] {
            let found = split(command, false);
            let found = found.as_ref().map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(found, words, "{command}");
        }
        let windows = split(r#""C:\Program Files\tool.exe" it's \"x\""#, true).unwrap();
        assert_eq!(windows, [r"C:\Program Files\tool.exe", "it's", "\"x\""]);
    }
}
