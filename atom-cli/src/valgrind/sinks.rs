//! Where lines and XML go: a descriptor, a file, or a socket.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::Complaint;
use super::settings::Settings;

/// The port of a socket without a number.
const PORT: u16 = 1500;

/// A place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sink {
    /// A descriptor that the command has.
    Fd(i32),
    /// A file, by an absolute path that may have `%p`, `%n` and `%q{NAME}`.
    File(String),
    /// Address and port.
    Socket(String),
}

impl Sink {
    /// The place that the options with this start name, `--log` or `--xml`; the last one counts.
    pub fn of(settings: &Settings, start: &str) -> Result<Option<Self>, Complaint> {
        let options = ["fd", "file", "socket"].map(|end| format!("{start}-{end}"));
        let options = options.each_ref().map(String::as_str);
        let Some((option, value)) = settings.in_order(&options).last() else {
            return Ok(None);
        };
        let [fd, file, _] = options;
        Ok(Some(match option {
            _ if option == fd => Self::Fd(value.parse().unwrap_or(2)),
            _ if option == file => Self::file(&format!("{option}={value}"), value)?,
            _ if value.contains(':') => Self::Socket(value.to_owned()),
            _ => Self::Socket(format!("{value}:{PORT}")),
        }))
    }

    fn file(word: &str, value: &str) -> Result<Self, Complaint> {
        let path = std::path::absolute(value).unwrap_or_else(|_| value.into());
        let path = path.display().to_string();
        let this = expand(&path, std::process::id()).map_err(|why| Complaint::bad(word, &why))?;
        // A file with a number of a process is made when the number is known.
        if !value.contains('%')
            && let Err(error) = File::create(&this)
        {
            let error = without_number(&error);
            let what = if word.starts_with("--xml") {
                "XML"
            } else {
                "log"
            };
            return Err(Complaint::new(format!(
                "Cannot create {what} file '{this}': {error}"
            )));
        }
        Ok(Self::File(path))
    }

    /// Writes lines with a process's number in front.
    pub fn tell(&self, process: u32, text: &str) -> io::Result<()> {
        let lines = text.lines().map(|line| format!("=={process}== {line}\n"));
        let lines = lines.collect::<String>();
        match self {
            Self::Fd(fd) if *fd < 0 => Err(io::ErrorKind::InvalidInput.into()),
            Self::Fd(fd) => {
                // SAFETY: copying fails if it is not open.
                let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
                File::from(fd.try_clone_to_owned()?).write_all(lines.as_bytes())
            }
            Self::File(template) => {
                let path = expand(template, process).map_err(io::Error::other)?;
                File::create(path)?.write_all(lines.as_bytes())
            }
            Self::Socket(address) => TcpStream::connect(address)?.write_all(lines.as_bytes()),
        }
    }
}

/// Sends a file to a socket.
pub fn send(file: &Path, address: &str) -> io::Result<()> {
    let mut to = TcpStream::connect(address)?;
    io::copy(&mut File::open(file)?, &mut to).map(|_| ())
}

/// An error in the words of C.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The name of a file for a process.
pub fn expand(template: &str, process: u32) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("%q") {
        let inner = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        let (name, after) = inner.ok_or("expected '{' and '}' after %q")?;
        let value = std::env::var(name);
        let value = value.map_err(|_| format!("Environment variable '{name}' is not set"))?;
        text.push_str(before);
        text.push_str(&value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text.replace("%n", "%p").replace("%p", &process.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_and_variables() {
        assert_eq!(expand("/a.%p.%n", 7).as_deref(), Ok("/a.7.7"));
        let path = std::env::var("PATH").unwrap();
        assert_eq!(expand("%q{PATH}x", 7), Ok(format!("{path}x")));
        assert!(expand("%q{NO_SUCH_VARIABLE}", 7).is_err() && expand("%q", 7).is_err());
    }
}
