package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"time"
)

// component is a component of CycloneDX 1.6.
type component struct {
	Type    string `json:"type"`
	BOMRef  string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// bom is a bill of materials in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
type bom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

// writeSBOM writes which modules are in the binary, as the linker has noted them in it.
func (p product) writeSBOM() error {
	info, err := buildinfo.ReadFile(p.binary())
	if err != nil {
		return err
	}
	module := func(path, version string) component {
		purl := "pkg:golang/" + path + "@" + version
		return component{Type: "library", BOMRef: purl, Name: path, Version: version, PURL: purl}
	}
	self := module(info.Path, p.packageVersion())
	self.Type = "application"
	out := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{Timestamp: p.date.Format(time.RFC3339), Component: self}}
	std := module("std", info.GoVersion)
	out.Components = append(out.Components, std)
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		out.Components = append(out.Components, module(dep.Path, dep.Version))
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(p.file(".sbom.json"), append(text, '\n'), 0o644)
}
