use atom_core::{
    cfg::{Cfg, seeds::FrameFacts},
    emit,
    image::Image,
    plan::Plan,
    rewrite,
};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let image = Image::open(a[1].as_ref()).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(1)
    });
    let table = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&table)).unwrap();
    let plan = Plan::default();
    let layout = rewrite::Layout::new(&image, &cfg, &plan, emit::start::HEAD).unwrap();
    let place = emit::Placement::new(&image, &cfg, &layout, &table, &plan, None).unwrap();
    let text = rewrite::encode(&image, &cfg, &plan, &layout, &place.anchors()).unwrap();
    let old = rewrite::pads::place(
        &image,
        &cfg,
        &layout,
        &rewrite::Options {
            strict: a.get(3).is_some(),
        },
    )
    .unwrap();
    println!("pads {}", old.patches.len());
    let out = emit::write(&image, &cfg, &plan, &layout, text, &old, &place, None).unwrap();
    std::fs::write(&a[2], out).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&a[2], std::fs::Permissions::from_mode(0o755)).unwrap();
}
