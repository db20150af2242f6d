//! Pages that people look at in a browser.
//!
//! A page is one file that needs no network: style, scripts and data are in it. All pages of the command have
//! one look and share what they are made of: colours and figures ([`LOOK`], [`TOOLS`]), tables of any length
//! ([`GRID`]), flame graphs ([`FLAME`]).
//!
//! Data is JSON in an element that is no script, so that names in it cannot become code. Large data is compressed
//! (zlib, RFC 1950) and written in base64; the browser's `DecompressionStream` reads it.
//!
//! `libs/` has two libraries of other authors with their licences: d3-hierarchy (ISC) and highlight.js (BSD-3-Clause).
#![deny(missing_docs)]

mod base64;

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Style that all pages share: colours in light and dark, header, buttons, tables.
pub const LOOK: &str = include_str!("../look/look.css");
/// Script that all pages share: reading the data, numbers, elements, the switch between light and dark.
pub const TOOLS: &str = include_str!("../look/tools.js");
/// Script of tables with any number of rows.
pub const GRID: &str = include_str!("../look/grid.js");
/// Script of flame graphs.
pub const FLAME: &str = include_str!("../look/flame.js");
/// Library d3-hierarchy: treemaps.
pub const D3_HIERARCHY: &str = include_str!("../libs/d3-hierarchy.min.js");

/// Library highlight.js: an ES module, and languages that register with its global name.
const HIGHLIGHT: &str = include_str!("../libs/highlight-core.min.js");
const LANGUAGES: [&str; 5] = [
    include_str!("../libs/highlight-c.min.js"),
    include_str!("../libs/highlight-cpp.min.js"),
    include_str!("../libs/highlight-rust.min.js"),
    include_str!("../libs/highlight-go.min.js"),
    include_str!("../libs/highlight-fortran.min.js"),
];

/// Size of data in bytes from which it is compressed.
const PLAIN: usize = 64 << 10;

/// A page.
pub struct Page<'a> {
    /// Title in the browser.
    pub title: &'a str,
    /// Style sheets, behind [`LOOK`].
    pub styles: &'a [&'a str],
    /// The elements of the body as HTML.
    pub body: &'a str,
    /// JSON texts, each with the id of the element that gets it.
    pub data: &'a [(&'a str, String)],
    /// Scripts, behind [`TOOLS`].
    pub scripts: &'a [&'a str],
}

impl Page<'_> {
    /// Writes the page.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let title = self.title.replace('&', "&amp;").replace('<', "&lt;");
        write!(
            to,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{LOOK}"
        )?;
        for style in self.styles {
            to.write_all(style.as_bytes())?;
        }
        writeln!(to, "</style>\n</head>\n<body>\n{}", self.body)?;
        for (id, json) in self.data {
            data(to, id, json)?;
        }
        for script in std::iter::once(&TOOLS).chain(self.scripts) {
            writeln!(to, "<script>\n{script}</script>")?;
        }
        to.write_all(b"</body>\n</html>\n")
    }
}

fn data(to: &mut dyn Write, id: &str, json: &str) -> io::Result<()> {
    if json.len() < PLAIN {
        // Inside of JSON `<` occurs in texts only, where it can be escaped.
        let json = json.replace('<', "\\u003c");
        return writeln!(
            to,
            "<script type=\"application/json\" id=\"{id}\">{json}</script>"
        );
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(json.as_bytes())?;
    let text = base64::encode(&packed.finish()?);
    writeln!(
        to,
        "<script type=\"application/octet-stream\" id=\"{id}\" data-packed>{text}</script>"
    )
}

/// Library highlight.js with its languages, as one script that defines `hljs`.
pub fn highlight() -> String {
    let (core, export) = HIGHLIGHT.rsplit_once("export{").unwrap_or((HIGHLIGHT, ""));
    let name = export.split(' ').next().unwrap_or_default();
    let mut script = format!("globalThis.hljs = (() => {{\n{core}\nreturn {name};\n}})();\n");
    for language in LANGUAGES {
        script.push_str(language);
        script.push('\n');
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_code_or_elements() {
        let json = "[\"</script><img src=x>\"]".to_owned();
        let page = Page {
            title: "<b>&",
            styles: &["x{}\n"],
            body: "<p></p>",
            data: &[("data", json)],
            scripts: &["go();\n"],
        };
        let mut out = Vec::new();
        page.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<title>&lt;b>&amp;</title>"));
        assert!(text.contains("[\"\\u003c/script>\\u003cimg src=x>\"]"));
        assert!(!text.contains("<img"));
    }

    #[test]
    fn large_data_is_packed() {
        let json = format!("[{}1]", "1,".repeat(PLAIN));
        let mut out = Vec::new();
        data(&mut out, "d", &json).unwrap();
        assert!(out.len() < 2000);
        assert!(String::from_utf8(out).unwrap().contains("data-packed"));
    }

    #[test]
    fn libraries_are_scripts() {
        let scripts = [D3_HIERARCHY, &highlight(), TOOLS, GRID, FLAME];
        assert!(scripts.iter().all(|s| !s.contains("</script")));
        assert!(highlight().contains("return te;"));
    }
}
