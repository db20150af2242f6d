use atom_core::{
    cfg::{Cfg, ProcKind, Status, seeds::FrameFacts},
    image::Image,
};
fn main() {
    for p in std::env::args().skip(1) {
        let t = std::time::Instant::now();
        let image = match Image::open(p.as_ref()) {
            Ok(i) => i,
            Err(e) => {
                println!("{e}");
                continue;
            }
        };
        let table = image.unwind_table().unwrap();
        let t1 = t.elapsed();
        let frames = FrameFacts::new(&table);
        let t2 = t.elapsed();
        let cfg = Cfg::build(&image, &frames).unwrap();
        let full = cfg
            .procs
            .iter()
            .filter(|p| p.status == Status::Full)
            .count();
        let frag = cfg
            .procs
            .iter()
            .filter(|p| matches!(p.kind, ProcKind::Fragment(_)))
            .count();
        println!(
            "{p}: {} procs {} full {} frags {} blocks {} insts  t {:?} {:?} {:?}",
            cfg.procs.len(),
            full,
            frag,
            cfg.blocks.len(),
            cfg.insts.len(),
            t1,
            t2,
            t.elapsed()
        );
        if std::env::var("COVER").is_ok() {
            cover(&cfg);
        }
        for pr in &cfg.procs {
            if let Status::Opaque(r) = &pr.status {
                println!(
                    "   {:#x}-{:#x} {}: {r}",
                    pr.start,
                    pr.end,
                    pr.display_name()
                );
            }
        }
    }
}
#[allow(dead_code)]
fn cover(cfg: &Cfg) {
    for (i, p) in cfg.procs.iter().enumerate() {
        let r = cfg.proc_insts(atom_core::ProcId(i as u32));
        let c: u64 = cfg.insts[r].iter().map(|i| i.len as u64).sum();
        let s = p.end - p.start;
        if s > 64 && c * 10 < s * 8 {
            println!("  cover {:#x} {} {}/{}", p.start, p.display_name(), c, s);
        }
    }
}
