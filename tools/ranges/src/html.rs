//! A page with a picture of each range, which shows the loads and stores of its parts.
//!
//! The page is a single file without scripts; drawings are embedded as SVG.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::{Site, Sites, output};

use crate::live::Range;
use crate::picture::PARTS;
use crate::sums::{Sum, Sums, grouped};

const WIDTH: usize = 1024;
const HEIGHT: u64 = 120;
/// Most procedures that are listed for each range.
const MOST: usize = 8;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1080px;padding:0 1em;color:#1c2430;background:#fff}\
h1{font-size:1.4em}h2{font-size:1.1em;margin:1.8em 0 .3em}\
svg{display:block;width:100%;height:auto;background:#f4f6f8;border:1px solid #d5dbe2}\
.l{fill:#2f6fb0}.s{fill:#d0672b}.a{stroke:#9aa5b1;stroke-width:1}\
table{border-collapse:collapse;margin:.5em 0}td,th{padding:.1em .8em .1em 0;text-align:right;font-weight:normal}\
th{color:#5c6875}td:last-child,th:last-child{text-align:left}\
p{margin:.3em 0;color:#5c6875}code{color:#1c2430}\
@media(prefers-color-scheme:dark){body{background:#14181d;color:#e4e9ee}svg{background:#1c222a;border-color:#39424d}code{color:#e4e9ee}.l{fill:#6aa9e6}.s{fill:#f0955a}}";

/// What the page shows.
pub struct Page<'a> {
    /// The program's name.
    pub program: &'a str,
    /// Names of the ranges.
    pub names: &'a [&'a str],
    pub ranges: &'a [Range],
    /// Sums of each range.
    pub totals: &'a [Sum],
}

impl Page<'_> {
    /// Writes the page to a file.
    pub fn write(&self, name: &str, sites: Sites, sums: &Sums) -> io::Result<()> {
        let mut file = output::create(name)?;
        file.write_all(self.text(sites, sums).as_bytes())?;
        file.flush()
    }

    fn text(&self, sites: Sites, sums: &Sums) -> String {
        let procs = grouped(sums, sites, |site| Some(site.proc_pc));
        let mut page = String::new();
        let title = format!("Data ranges of {}", escaped(self.program));
        let _ = writeln!(
            page,
            "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>\
         <meta name=viewport content='width=device-width'><style>{STYLE}</style><h1>{title}</h1>\
         <p>Loads stand above the line, stores below; each bar is a part of the range, from its first byte on the \
         left to its last on the right."
        );
        for (number, ((range, name), total)) in self
            .ranges
            .iter()
            .zip(self.names)
            .zip(self.totals)
            .enumerate()
        {
            let mine = procs.iter().filter(|p| p.0 == number as u32);
            let mine: Vec<(Site, Sum)> = mine.map(|p| (p.2, p.3)).collect();
            section(&mut page, range, name, *total, &mine);
        }
        page.push_str("</html>\n");
        page
    }
}

fn section(page: &mut String, range: &Range, name: &str, total: Sum, procs: &[(Site, Sum)]) {
    let Sum {
        loads,
        stores,
        bytes,
        misses,
    } = total;
    let size = range.size.load(Relaxed);
    let times = range.times.load(Relaxed);
    let _ = write!(
        page,
        "<h2><code>{}</code></h2><p>{loads} loads, {stores} stores, {bytes} bytes, {misses} misses; {size} bytes",
        escaped(name)
    );
    if range.fixed.is_none() {
        let _ = write!(page, " at most, appeared {times} times");
    }
    let (low, high) = (range.low.load(Relaxed), range.high.load(Relaxed));
    if low < high {
        let _ = write!(page, "; touched from offset {low:#x} to {:#x}", high - 1);
    }
    page.push_str(".\n");
    if let Some(picture) = &range.picture {
        let (part, values) = picture.parts();
        drawing(page, part, size, &values);
    }
    if procs.is_empty() {
        return;
    }
    page.push_str("<table><tr><th>loads<th>stores<th>bytes<th>misses<th>procedure\n");
    for (site, sum) in procs.iter().take(MOST) {
        let Sum {
            loads,
            stores,
            bytes,
            misses,
        } = sum;
        let proc = escaped(&site.proc_of_process());
        let _ = writeln!(
            page,
            "<tr><td>{loads}<td>{stores}<td>{bytes}<td>{misses}<td>{proc}"
        );
    }
    page.push_str("</table>\n");
}

fn drawing(page: &mut String, part: u64, size: u64, values: &[[u64; 2]]) {
    let used = size.div_ceil(part).clamp(1, PARTS as u64) as usize;
    let values = &values[..used.min(values.len())];
    let most = values.iter().flatten().copied().max().unwrap_or(0).max(1);
    let width = WIDTH as f64 / used as f64;
    let full = HEIGHT * 2 + 1;
    let _ = write!(
        page,
        "<svg viewBox='0 0 {WIDTH} {full}' role=img aria-label='accesses over the range'>"
    );
    for (i, value) in values.iter().enumerate() {
        let from = i as u64 * part;
        let to = (from + part).min(size).max(from + 1) - 1;
        if *value == [0, 0] {
            continue;
        }
        let x = i as f64 * width;
        let bar = (width * 0.92).max(0.5);
        let tall = |n: u64| n as f64 * HEIGHT as f64 / most as f64;
        let [up, down] = value.map(tall);
        let top = HEIGHT as f64 - up;
        let below = HEIGHT + 1;
        let [loads, stores] = value;
        let _ = write!(
            page,
            "<g><title>+{from:#x} to +{to:#x}: {loads} loads, {stores} stores</title>\
             <rect class=l x={x:.2} y={top:.2} width={bar:.2} height={up:.2} />\
             <rect class=s x={x:.2} y={below} width={bar:.2} height={down:.2} /></g>"
        );
    }
    let _ = writeln!(
        page,
        "<line class=a x1=0 x2={WIDTH} y1={HEIGHT}.5 y2={HEIGHT}.5 /></svg>\
         <p>a bar is {part} bytes; the highest is {most}"
    );
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('\'', "&#39;")
}
