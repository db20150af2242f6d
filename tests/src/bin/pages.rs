//! Time of `atom report` for a profile with many rows: printing, writing the page, and the page in a browser.
//!
//! Usage: pages [ROWS [RUNS]]
//!
//! Figures of `atom` are processor time. Chromium without a window opens the page from a small server of this program,
//! so that it runs in real time: the page sends its figures back. Each figure is the least of the runs.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use atom_tests::atom;
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::outcome::children;
use serde_json::Value;

/// Runs in the page: waits until it is ready and painted, searches, and sends the figures in milliseconds.
const SCRIPT: &str = r##"<script>{
    const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const timed = async (act) => { const start = performance.now(); act(); await painted(); return performance.now() - start; };
    const type = (text) => { const e = document.querySelector("#find"); e.value = text; e.dispatchEvent(new Event("input", { bubbles: true })); };
    const run = async () => {
        const out = { ready: performance.now() };
        await painted();
        out.painted = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? performance.now();
        const tab = [...document.querySelectorAll("[role=tab]")].find((e) => e.textContent.includes("procedures"));
        out.table = await timed(() => tab.click());
        out.letter = await timed(() => type("9"));
        out.word = await timed(() => type("9876"));
        out.none = await timed(() => type("no such name"));
        out.all = await timed(() => type(""));
        const head = [...document.querySelectorAll("#grid [role=columnheader]")].find((e) => e.textContent.includes("procedure"));
        out.sort = await timed(() => head.click());
        await fetch("/figures", { method: "POST", body: JSON.stringify(out) });
    };
    if (document.documentElement.dataset.state === "ready") run();
    else document.addEventListener("page-ready", run);
}</script></body>"##;

/// Figures of the page: key and words.
const FIGURES: [(&str, &str); 8] = [
    ("painted", "first contentful paint"),
    ("ready", "page ready"),
    ("table", "open the table"),
    ("letter", "search one letter"),
    ("word", "search a word of four"),
    ("none", "search without a match"),
    ("all", "show all again"),
    ("sort", "sort by name"),
];

fn main() -> ExitCode {
    exit_code("pages", measure().map(|()| true))
}

fn fail(e: impl ToString) -> Error {
    Error::new("measuring", e.to_string())
}

/// A profile of procedures with names of different lengths, in files of 50 procedures each.
fn profile(rows: usize) -> String {
    let list = |value: &dyn Fn(usize) -> String| {
        let values: Vec<String> = (0..rows).map(value).collect();
        values.join(",")
    };
    let names = list(&|n| {
        format!(
            "\"module_{}::procedure_{n}<{}>\"",
            n % 97,
            "x".repeat(n % 40)
        )
    });
    let files = list(&|n| format!("\"/src/file_{}.c\"", n / 50));
    let mut text = String::new();
    let counts = list(&|n| (n * 7919 % 100_003 + 1).to_string());
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{{\"format\":\"atom-profile\",\"version\":1,\"tool\":\"icount\",\"program\":{{\"path\":\"/bin/app\",\"arguments\":[\"app\"]}},\
         \"objects\":[{{\"name\":\"app\",\"path\":\"/bin/app\",\"kind\":\"program\",\"instrumented\":true}}],\
         \"strings\":[{names},{files}],\"facts\":[{{\"name\":\"instructions\",\"type\":\"count\",\"sum\":\"add\",\"value\":1}}],\
         \"tables\":[{{\"name\":\"procedures\",\"by\":\"procedure\",\"rows\":{rows},\"columns\":[\
         {{\"name\":\"count\",\"type\":\"count\",\"unit\":\"instructions\",\"role\":\"measure\",\"sum\":\"add\",\"values\":[{counts}]}},\
         {{\"name\":\"%\",\"type\":\"percent\",\"role\":\"derived\",\"part\":\"count\"}},\
         {{\"name\":\"pc\",\"type\":\"address\",\"role\":\"key\",\"values\":[{}]}},\
         {{\"name\":\"line\",\"type\":\"place\",\"role\":\"label\",\"files\":[{}],\"values\":[{}]}},\
         {{\"name\":\"procedure\",\"type\":\"text\",\"role\":\"label\",\"values\":[{}]}}]}}]}}",
        list(&|n| (4096 + 16 * n).to_string()),
        list(&|n| (rows + n).to_string()),
        list(&|n| (n % 50 * 20 + 1).to_string()),
        list(&|n| n.to_string()),
    );
    text
}

fn measure() -> Result<()> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let rows = numbers.first().copied().unwrap_or(100_000);
    let runs = numbers.get(1).copied().unwrap_or(5).max(1);
    let folder = atom_tests::cache::target_folder()?.join("test-programs/pages-bench");
    std::fs::create_dir_all(&folder).map_err(fail)?;
    std::fs::write(folder.join("rows.profile"), profile(rows)).map_err(fail)?;
    println!("{rows} rows, least of {runs} runs, milliseconds");
    for (words, arguments) in [
        ("atom report, 30 rows", &["-o", "report.txt"][..]),
        ("atom report, all rows", &["--top", "0", "-o", "report.txt"]),
        (
            "atom report --by procedure",
            &["--by", "procedure", "-o", "report.txt"],
        ),
        ("atom report --csv", &["--csv", "-o", "report.csv"]),
        ("atom report --json", &["--json", "-o", "report.json"]),
        (
            "atom report --export pprof",
            &["--export", "pprof", "-o", "report.pb.gz"],
        ),
        ("atom report --html", &["--html", "report.html"]),
    ] {
        let mut least = f64::MAX;
        for _ in 0..runs {
            least = least.min(report(&folder, arguments)?);
        }
        println!("{words:28} {least:8.0}");
    }
    let page = folder.join("report.html");
    let text = std::fs::read_to_string(&page).map_err(fail)?;
    println!(
        "{:28} {:8.1} MB",
        "size of the page",
        text.len() as f64 / 1e6
    );
    let text = text.replace("</body>", SCRIPT);
    let mut least = [f64::MAX; FIGURES.len()];
    for _ in 0..runs {
        let figures = in_browser(&folder, &text)?;
        for (least, (key, _)) in least.iter_mut().zip(FIGURES) {
            *least = least.min(figures[key].as_f64().unwrap_or(f64::MAX));
        }
    }
    for (least, (_, words)) in least.iter().zip(FIGURES) {
        println!("page: {words:22} {least:8.0}");
    }
    Ok(())
}

/// Milliseconds of processor time of a run of `atom report`.
fn report(folder: &Path, arguments: &[&str]) -> Result<f64> {
    let before: f64 = children().iter().sum();
    let output = Command::new(atom::command()?)
        .current_dir(folder)
        .args(["report", "rows.profile"])
        .args(arguments)
        .output()
        .map_err(fail)?;
    let passed = (children().iter().sum::<f64>() - before) * 1e3;
    if output.status.success() {
        Ok(passed)
    } else {
        Err(fail(String::from_utf8_lossy(&output.stderr)))
    }
}

/// The figures that the page sends.
fn in_browser(folder: &Path, page: &str) -> Result<Value> {
    let server = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let address = server.local_addr().map_err(fail)?;
    let browser = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args(["--window-size=1200,900", "--remote-debugging-port=0"])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("browser").display()
        ))
        .arg(format!("http://{address}/"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| fail(format!("chromium: {e}")))?;
    let _browser = Ended(browser);
    for stream in server.incoming() {
        // A browser opens connections that it does not use, and closes some early.
        if let Ok(Some(figures)) = answer(stream.map_err(fail)?, page) {
            return serde_json::from_slice(&figures).map_err(fail);
        }
    }
    Err(fail("the page sent no figures"))
}

/// A program that ends when this value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers a request with the page; returns the body of a request with figures.
fn answer(stream: TcpStream, page: &str) -> std::io::Result<Option<Vec<u8>>> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut from = BufReader::new(stream);
    let (mut first, mut line) = (String::new(), String::new());
    from.read_line(&mut first)?;
    let mut length = 0;
    while from.read_line(&mut line)? > 2 {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let is_page = first.starts_with("GET / ");
    let page = if is_page { page } else { "" };
    let mut to = from.into_inner();
    write!(
        to,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
        page.len()
    )?;
    Ok(first.starts_with("POST /figures").then_some(body))
}
