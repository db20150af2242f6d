//! The XML of Valgrind's memcheck, protocol 4.

use std::fmt::Write as _;
use std::process;

use atom_tool::report::arguments;

use crate::fatal::Fatal;
use crate::given::Given;
use crate::told::{Frame, Kind, Told};

/// Writes text so that it is text in XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if (c as u32) < 32 && c != '\n' && c != '\t' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Words of a command line: the program, and its arguments.
fn words(indent: &str, words: &[String]) -> String {
    let mut text = String::new();
    let mut name = "exe";
    for word in words {
        let _ = writeln!(text, "{indent}<{name}>{}</{name}>", escaped(word));
        name = "arg";
    }
    text
}

/// The beginning, up to the state RUNNING.
pub fn head(given: &Given, is_quiet: bool) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\"?>\n\n<valgrindoutput>\n\n<protocolversion>4</protocolversion>\n<protocoltool>memcheck</protocoltool>\n\n<preamble>\n",
    );
    let head = given.head();
    for line in head.lines().take(if is_quiet { 1 } else { usize::MAX }) {
        let _ = writeln!(text, "  <line>{}</line>", escaped(line));
    }
    let _ = writeln!(
        text,
        "</preamble>\n\n<pid>{}</pid>\n<ppid>{}</ppid>\n<tool>memcheck</tool>\n",
        process::id(),
        std::os::unix::process::parent_id()
    );
    if !given.comment.is_empty() {
        // The option promises that it may have elements.
        let _ = writeln!(text, "<usercomment>{}</usercomment>\n", given.comment);
    }
    let of_run = || ["atom", "run", "memcheck"].map(str::to_owned).to_vec();
    let own = match given.words.as_slice() {
        [] => &of_run(),
        own => own,
    };
    let (own, command) = (words("    ", own), words("    ", &arguments()));
    let _ = writeln!(
        text,
        "<args>\n  <vargv>\n{own}  </vargv>\n  <argv>\n{command}  </argv>\n</args>\n"
    );
    text.push_str(&status("RUNNING"));
    text
}

fn status(state: &str) -> String {
    let time = process_seconds();
    let (days, rest) = (time / 86_400, time % 86_400);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!(
        "<status>\n  <state>{state}</state>\n  <time>{days:02}:{hours:02}:{minutes:02}:{seconds:02}.000 </time>\n</status>\n\n"
    )
}

/// Whole seconds since the process was started.
fn process_seconds() -> u64 {
    static START: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let now = atom_tool::clocks::monotonic();
    now.saturating_sub(*START.get_or_init(|| now)) / 1_000_000_000
}

fn frame(frame: &Frame) -> String {
    let mut text = format!("    <frame>\n      <ip>{:#X}</ip>\n", frame.ip).replace("0X", "0x");
    let mut put = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "      <{name}>{}</{name}>", escaped(value));
        }
    };
    put("obj", frame.object_path());
    put("fn", &frame.function);
    let (folder, file) = frame.file.rsplit_once('/').unwrap_or(("", frame.file));
    put("dir", folder);
    put("file", file);
    if frame.line != 0 {
        put("line", &frame.line.to_string());
    }
    text.push_str("    </frame>\n");
    text
}

fn stack(frames: &[Frame]) -> String {
    let frames: String = frames.iter().map(frame).collect();
    format!("  <stack>\n{frames}  </stack>\n")
}

/// An error.
pub fn error(told: &Told, number: u64, thread: u32, suppression: Option<&str>) -> String {
    let mut text = format!(
        "<error>\n  <unique>{number:#x}</unique>\n  <tid>{thread}</tid>\n  <kind>{}</kind>\n",
        told.kind.xml()
    );
    if let (Kind::Leak(_), Some((bytes, blocks))) = (told.kind, told.leaked) {
        let _ = writeln!(
            text,
            "  <xwhat>\n    <text>{}</text>\n    <leakedbytes>{bytes}</leakedbytes>\n    <leakedblocks>{blocks}</leakedblocks>\n  </xwhat>",
            escaped(&told.what)
        );
    } else {
        let _ = writeln!(text, "  <what>{}</what>", escaped(&told.what));
    }
    text.push_str(&stack(&told.stack));
    for part in &told.parts {
        let _ = writeln!(text, "  <auxwhat>{}</auxwhat>", escaped(&part.text));
        if !part.stack.is_empty() {
            text.push_str(&stack(&part.stack));
        }
    }
    if let Some(suppression) = suppression {
        text.push_str(&suppression_element(told, suppression));
    }
    text.push_str("</error>\n\n");
    text
}

/// The end by a signal.
pub fn fatal(fatal: &Fatal, thread: u32) -> String {
    let mut text = format!(
        "<fatal_signal>\n  <tid>{thread}</tid>\n  <signo>{}</signo>\n  <signame>{}</signame>\n  <sicode>{}</sicode>\n",
        fatal.signal, fatal.name, fatal.code
    );
    if let Some(event) = fatal.event {
        let _ = writeln!(text, "  <event>{}</event>", escaped(event));
    }
    if let Some(address) = fatal.address {
        let _ = writeln!(text, "  <siaddr>{address:#x}</siaddr>");
    }
    text.push_str(&stack(&fatal.stack));
    text.push_str("</fatal_signal>\n\n");
    text
}

fn suppression_element(told: &Told, raw: &str) -> String {
    let mut text = format!(
        "  <suppression>\n    <sname>insert_a_suppression_name_here</sname>\n    <skind>Memcheck:{}</skind>\n",
        told.kind.suppression()
    );
    for frame in &told.stack {
        let _ = writeln!(
            text,
            "    <sframe> <fun>{}</fun> </sframe>",
            escaped(&frame.symbol)
        );
    }
    let _ = writeln!(
        text,
        "    <rawtext>\n<![CDATA[\n{raw}]]>\n    </rawtext>\n  </suppression>"
    );
    text
}

/// The end: the state, and how often each error and each suppression was met.
pub fn tail() -> String {
    let mut text = status("FINISHED");
    text.push_str("<errorcounts>\n</errorcounts>\n\n<suppcounts>\n");
    for (name, count) in crate::suppressions::counts() {
        let _ = writeln!(
            text,
            "  <pair>\n    <count>{count}</count>\n    <name>{}</name>\n  </pair>",
            escaped(&name)
        );
    }
    text.push_str("</suppcounts>\n\n</valgrindoutput>\n");
    text
}
