use atom_core::{
    cfg::{Cfg, seeds::FrameFacts},
    image::Image,
};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let image = Image::open(a[1].as_ref()).unwrap();
    let table = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&table)).unwrap();
    let addr = u64::from_str_radix(a[2].trim_start_matches("0x"), 16).unwrap();
    let Some(p) = cfg.proc_at(addr) else {
        println!("none");
        return;
    };
    println!("{p} {:x?}", cfg.proc(p));
    for t in &cfg.jump_tables {
        if cfg.proc_at(cfg.inst_pc(t.jump)) == Some(p) {
            println!("{:x?}", t);
        }
    }
    for b in cfg.proc(p).blocks() {
        let bl = cfg.block(b);
        println!(
            "{b} {:#x} n={} entry={} ind={} {:x?}",
            cfg.block_pc(b),
            bl.count,
            bl.is_entry,
            bl.is_indirect_target,
            cfg.succs(b)
        );
    }
}
