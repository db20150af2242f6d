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
