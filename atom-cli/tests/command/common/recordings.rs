//! Data files of recorded kernels whose sums are known.

use std::path::Path;

use arp::{Area, DataType, Format, Meter, Mode, Section, SectionKind, Session, Sid, Tid};

/// Numbers of the sections.
pub const CONVOLVE: Sid = Sid(1);
pub const CLIP: Sid = Sid(3);
pub const FILTER: Sid = Sid(2);
pub const LOOP: Sid = Sid(7);
pub const MAIN: Sid = Sid(9);

/// A clock that advances only at the end of a section, by the section's cost.
struct Clock {
    now: u64,
    clips: u64,
    convolution: u64,
}

impl Meter for Clock {
    fn enter(&mut self, _: Sid, data: &mut Area) {
        data.set_word(self.now);
    }

    fn leave(&mut self, sid: Sid, data: &mut Area) {
        self.now += match sid {
            CONVOLVE => self.convolution,
            CLIP => {
                self.clips += 1;
                3 + self.clips
            }
            FILTER => 1,
            _ => 100,
        };
        data.set_word(self.now - data.word());
    }
}

/// A clock that counts the ends of sections.
struct Ends(u64);

impl Meter for Ends {
    fn enter(&mut self, _: Sid, data: &mut Area) {
        data.set_word(self.0);
    }

    fn leave(&mut self, _: Sid, data: &mut Area) {
        self.0 += 1;
        data.set_word(self.0 - data.word());
    }
}

/// What is recorded.
pub struct Recording<'a> {
    pub mode: Mode,
    pub format: Format,
    pub gzip: bool,
    /// Cost of a convolution in ticks.
    pub convolution: u64,
    pub threads: &'a [u32],
    /// The name of the section `CLIP`.
    pub clip: &'a str,
}

impl Default for Recording<'_> {
    fn default() -> Self {
        Self {
            mode: Mode::RecordAll,
            format: Format::Binary,
            gzip: false,
            convolution: 10,
            threads: &[1],
            clip: "clip",
        }
    }
}

impl Recording<'_> {
    /// Writes a data file. Each thread records
    ///
    /// ```text
    /// main 9 { loop 7 three times { filter 2 { convolve 1 twice, clip 3 } } }
    /// ```
    ///
    /// A convolution costs 10, the clips cost 4, 5 and 6, a filter costs 1 and main 100. So the totals are
    /// 60 for convolve, 15 for clip, 78 for filter (3 of them self), 178 for main (100 of them self).
    pub fn write(&self, path: &Path) {
        let convolution = self.convolution;
        let mut builder = Session::builder(self.mode)
            .file(path)
            .format(self.format)
            .gzip(self.gzip)
            .meter(DataType::ULong, "ticks", move |_| Clock {
                now: 0,
                clips: 0,
                convolution,
            })
            .meter(DataType::Double, "ends", |_| Doubled(Ends(0)));
        for (sid, kind, name, line) in [
            (CONVOLVE, SectionKind::Kernel, "convolve", 12),
            (CLIP, SectionKind::Kernel, self.clip, 20),
            (FILTER, SectionKind::Profiled, "filter", 10),
            (LOOP, SectionKind::Plain, "loop", 40),
            (MAIN, SectionKind::Profiled, "main", 30),
        ] {
            builder = builder.section(Section {
                sid,
                kind,
                name: name.into(),
                file: "image.c".into(),
                line,
                end_line: line + 5,
            });
        }
        let session = builder.start().expect("a session");
        for tid in self.threads {
            let mut thread = session.thread(Tid(*tid));
            thread.enter(SectionKind::Profiled, MAIN, 0);
            for _ in 0..3 {
                thread.enter(SectionKind::Plain, LOOP, 0);
                thread.enter(SectionKind::Profiled, FILTER, 0);
                for sid in [CONVOLVE, CONVOLVE, CLIP] {
                    thread.enter(SectionKind::Kernel, sid, 0);
                    thread.leave(SectionKind::Kernel, sid);
                }
                thread.leave(SectionKind::Profiled, FILTER);
                thread.leave(SectionKind::Plain, LOOP);
            }
            thread.leave(SectionKind::Profiled, MAIN);
            thread.end();
        }
        session.finish().expect("the file is written");
    }
}

/// The same values as `double`.
struct Doubled(Ends);

impl Meter for Doubled {
    fn enter(&mut self, sid: Sid, data: &mut Area) {
        self.0.enter(sid, data);
    }

    fn leave(&mut self, sid: Sid, data: &mut Area) {
        self.0.leave(sid, data);
        let value = data.word() as f64;
        data.set_word(value.to_bits());
    }
}

/// A data file as a program without any library would write it.
pub fn by_hand(mode: u8, types: &[u8], records: &[&str]) -> String {
    let types: Vec<_> = types.iter().map(u8::to_string).collect();
    format!(
        "# Atomium record and playback data - format version 1.1.\n0 {mode} {} {}\n{}\n{}\n",
        types.len(),
        types.join(" "),
        records.len(),
        records.join("\n")
    )
}
