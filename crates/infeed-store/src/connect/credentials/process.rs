//! Credentials that a program prints.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html>
//!
//! The program is run as the AWS command line runs it: its words are split at spaces outside of quotes, and no shell sees
//! them, so that no `$`, `~` or `;` means anything. Nothing that it prints is told, for that may be secret.

use std::{
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::{
    super::{pages::wrap, profile::Profile},
    renewed::{Issued, Issuer},
};

/// Of what it prints.
const MOST: u64 = 64 << 10;
/// What takes longer waits for somebody.
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
            true => Err(process.failed("has a quote or backslash with nothing behind it").hint("close the quotes")),
            false => Ok(process),
        }
    }

    fn failed(&self, what: &str) -> Error {
        Error::new(ErrorKind::Denied, format!("credential_process of the profile `{}` {what}", self.profile))
            .at_object(self.file.as_str())
    }

    async fn run(&self) -> Result<Vec<u8>> {
        let by_hand = "run the program by hand: it says why";
        let fails = |error: io::Error| self.failed("cannot be run").hint(by_hand).with_source(error);
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(fails)?;
        let stdout = child.stdout.take();
        let running = Running(Arc::new(Mutex::new(child)));
        let child = Arc::clone(&running.0);
        let (tell, told) = oneshot::channel();
        // Not one of the runtime's threads: those are waited for at its end, and the program may hang.
        let wait =
            move || _ = tell.send(stdout.map_or(Ok(Vec::new()), read).and_then(|text| Ok((ended(&child)?, text))));
        thread::Builder::new().name("infeed-credentials".into()).spawn(wait).map_err(fails)?;
        let Ok(told) = tokio::time::timeout(PATIENCE, told).await else {
            return Err(self.failed(&format!("did not end within {} s", PATIENCE.as_secs())).hint(by_hand));
        };
        let (status, text) = told.unwrap_or_else(|_| Err(io::Error::other("its thread broke off"))).map_err(fails)?;
        match status.success() {
            true => Ok(text),
            false => Err(self.failed(&format!("ended with {status}")).hint(by_hand)),
        }
    }
}

/// Ends the program when nobody waits for it any more.
struct Running(Arc<Mutex<Child>>);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        _ = lock(&self.0).kill();
    }
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(stdout: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    stdout.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

fn ended(child: &Mutex<Child>) -> io::Result<ExitStatus> {
    loop {
        // Not held while it waits, for who wants to end it. It has closed its output, so that it ends soon.
        if let Some(status) = lock(child).try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[async_trait]
impl Issuer for Process {
    async fn issue(&self) -> object_store::Result<Issued> {
        let text = self.run().await.map_err(wrap)?;
        let odd = |what: &str| wrap(self.failed(&format!("printed something else than credentials: {what}")));
        let answer: serde_json::Value = serde_json::from_slice(&text).map_err(|_| odd("it is not JSON"))?;
        if answer.get("Version").and_then(serde_json::Value::as_u64) != Some(1) {
            return Err(odd("its Version is not 1"));
        }
        Issued::of_json(&answer).map_err(|what| odd(&what))
    }
}

/// As Python's `shlex` splits it: quotes and backslashes. On Windows a backslash is one, but before a double quote, and
/// single quotes are letters. `None` where a quote is not closed.
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

    #[cfg(unix)]
    #[test]
    fn a_program_that_nobody_waits_for_any_more_ends() {
        let running = Running(Arc::new(Mutex::new(Command::new("sleep").arg("1000").spawn().unwrap())));
        let child = Arc::clone(&running.0);
        drop(running);
        assert_eq!(ended(&child).unwrap().code(), None, "by a signal");
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
