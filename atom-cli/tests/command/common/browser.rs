//! Pages in a browser: chromium without a window.

use std::process::Command;

use serde_json::Value;

use super::Folder;

/// True if there is a browser; else a line says that the test is skipped.
pub fn is_installed() -> bool {
    let found = Command::new("chromium").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: chromium is not installed (Debian package chromium)");
    }
    found
}

/// The document as text after all scripts have run. `hash` is what follows the page's address.
pub fn browse(folder: &Folder, page: &str, hash: &str) -> String {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1200,900",
            "--virtual-time-budget=20000",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("browser").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}{hash}", folder.join(page).display()))
        .output()
        .expect("chromium runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.contains("<html"),
        "chromium shows the page: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// An attribute of the document's root.
pub fn attribute<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let root = &document[document.find("<html").expect("a root")..];
    let root = &root[..root.find('>').expect("its end")];
    let (_, rest) = root.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

/// Functions for scripts that use a page as a person does.
const HANDS: &str = r#"
    const all = (q) => [...document.querySelectorAll(q)].filter((e) => e.offsetParent !== null || e.tagName === "BODY");
    const texts = (q) => all(q).map((e) => e.textContent);
    const one = (q, text) => {
        const found = all(q).find((e) => text === undefined || e.textContent.includes(text));
        if (!found) throw new Error(`nothing at ${q} ${text ?? ""}`);
        return found;
    };
    const click = (q, text) => one(q, text).click();
    const type = (q, text) => { const e = one(q); e.value = text; e.dispatchEvent(new Event("input", { bubbles: true })); };
    const press = (key, e = document.activeElement) =>
        e.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const settle = () => new Promise((done) => setTimeout(done, 50));
"#;

/// Runs `script`, the body of an asynchronous function, when the page is ready, and returns its result.
pub fn drive(folder: &Folder, page: &str, script: &str) -> Value {
    let text = String::from_utf8(folder.read(page)).expect("UTF-8");
    let driver = format!(
        "<script>{{ {HANDS}\n\
         const run = async () => {{\n\
         const result = await (async () => {{ {script} }})();\n\
         const out = document.createElement('pre'); out.id = 'result';\n\
         out.textContent = JSON.stringify(result); document.body.append(out); }};\n\
         if (document.documentElement.dataset.state === 'ready') run();\n\
         else document.addEventListener('page-ready', run); }}</script></body>"
    );
    folder.write("driven.html", text.replace("</body>", &driver));
    let document = browse(folder, "driven.html", "");
    assert_eq!(attribute(&document, "data-error"), None);
    assert_eq!(attribute(&document, "data-state"), Some("ready"));
    let (_, result) = document
        .split_once("<pre id=\"result\">")
        .expect("the script's result");
    let result = result.split("</pre>").next().expect("its end");
    let result = result.replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&result.replace("&amp;", "&")).expect("JSON")
}
