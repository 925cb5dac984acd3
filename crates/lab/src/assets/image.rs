//! Container images as archives that `ctr images import` reads: one layer, not compressed, the same
//! bytes for the same files.

use std::io;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::LabError;
use crate::tree::{Kind, Tree};

/// An image of one layer.
pub(super) struct Image<'a> {
    pub(super) name: &'a str,
    pub(super) files: &'a Tree,
    /// What its containers run unless told otherwise.
    pub(super) command: &'a str,
}

/// One archive of all these images.
///
/// # Errors
/// A path that tar cannot hold.
pub(super) fn archive(images: &[Image<'_>]) -> Result<Vec<u8>, LabError> {
    pack(images).map_err(LabError::io("pack", "the images"))
}

fn pack(images: &[Image<'_>]) -> io::Result<Vec<u8>> {
    let mut out = Tree::default();
    let manifest = images.iter().map(|image| {
        let layer = layer(image.files)?;
        let digest = digest(&layer);
        let configuration = configuration(&digest, image.command)?;
        let configuration_name = format!("{}.json", self::digest(&configuration));
        let layer_name = format!("{digest}.tar");
        out.file(&configuration_name, 0o644, configuration);
        out.file(&layer_name, 0o644, layer);
        Ok(json!({
            "Config": configuration_name,
            "RepoTags": [image.name],
            "Layers": [layer_name],
        }))
    });
    let manifest = manifest.collect::<io::Result<Vec<_>>>()?;
    out.file("manifest.json", 0o644, serde_json::to_vec(&manifest)?);
    layer(&out)
}

fn configuration(digest: &str, command: &str) -> io::Result<Vec<u8>> {
    let created = "1970-01-01T00:00:00Z";
    let value = json!({
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "Cmd": [command],
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created": created }],
    });
    Ok(serde_json::to_vec(&value)?)
}

/// A tar archive of a tree. Owner root, time zero.
fn layer(files: &Tree) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for entry in files.entries() {
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        match &entry.kind {
            Kind::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                let path = format!("{}/", entry.path);
                tar.append_data(&mut header, path, io::empty())?;
            }
            Kind::File(data) => {
                header.set_size(u64::try_from(data.len()).unwrap_or(u64::MAX));
                tar.append_data(&mut header, &entry.path, data.as_slice())?;
            }
            Kind::Symlink(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                tar.append_link(&mut header, &entry.path, target)?;
            }
            Kind::Character(major, minor) => {
                header.set_entry_type(tar::EntryType::Char);
                header.set_device_major(*major)?;
                header.set_device_minor(*minor)?;
                tar.append_data(&mut header, &entry.path, io::empty())?;
            }
        }
    }
    tar.into_inner()
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::io::Read;

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        });
        entries.collect()
    }

    fn image() -> Vec<u8> {
        let mut files = Tree::default();
        files.file("usr/bin/tool", 0o755, "#!");
        files.symlink("bin", "usr/bin");
        let image = Image {
            name: "localhost/tool:1",
            files: &files,
            command: "/usr/bin/tool",
        };
        archive(&[image]).unwrap()
    }

    #[test]
    fn the_manifest_leads_to_the_layer_by_its_digest() {
        let files = unpack(&image());
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "localhost/tool:1");
        let layer = &files[manifest[0]["Layers"][0].as_str().unwrap()];
        let configuration = &files[manifest[0]["Config"].as_str().unwrap()];
        let configuration: Value = serde_json::from_slice(configuration).unwrap();
        let expected = format!("sha256:{}", digest(layer));
        assert_eq!(configuration["rootfs"]["diff_ids"][0], expected.as_str());
        let inner: Vec<_> = unpack(layer).into_keys().collect();
        assert_eq!(inner, ["bin", "usr/", "usr/bin/", "usr/bin/tool"]);
    }

    #[test]
    fn the_same_files_are_the_same_bytes() {
        assert_eq!(image(), image());
    }
}
